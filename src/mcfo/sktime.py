"""A forecaster of sktime: `from mcfo.sktime import McfoForecaster`, with the extra mcfo[sktime]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd

try:
    from sktime.forecasting.base import BaseForecaster
except ImportError as error:
    raise ImportError(
        f"The forecaster needs sktime, which cannot be imported ({error}). Install it: pip install 'mcfo[sktime]'."
    ) from error

from mcfo.data.suggestions import suggest_period
from mcfo.learning.fit import fit
from mcfo.learning.results import Fitted
from mcfo.series import Series

_LEAST = 16
"""The shortest length to which series and forecasts are padded."""


class McfoForecaster(BaseForecaster):
    """A state-space model that is learned by `fit` and forecasts by `predict`, `predict_quantiles`, `predict_interval`.

        >>> from mcfo.sktime import McfoForecaster
        >>> forecaster = McfoForecaster(season=12, options={"trend": "local", "transform": "log"})
        >>> forecaster.fit(y, fh=range(1, 13)).predict_interval(coverage=0.9)  # doctest: +SKIP

    A panel or a hierarchy, and a frame of several variables, get one model for each instance and variable. Inputs X are
    read by the models that take inputs; their rows must be known from the step after the data on. In-sample predictions
    are those one step ahead, and at the steps from which a diffuse start is found the smoothed ones.

    **Arguments:**

    - `model`: a model of the catalogue, `mcfo models`.
    - `season`: the steps in a season of a structural model, several as a tuple; "auto" looks for one.
    - `options`: further options of the model.
    - `settings`: keyword arguments of [`fit`][mcfo.fit], such as `objective` and `steps`.
    - `particles`: those of filters and forecasts; by default none where answers are exact, otherwise 1000.
    - `seed`: of all random numbers.
    """

    _tags: ClassVar[dict[str, Any]] = {
        "authors": ["mcfo"],
        "maintainers": ["mcfo"],
        "python_dependencies": ["mcfo"],
        "y_inner_mtype": "pd.Series",
        "X_inner_mtype": "pd.DataFrame",
        "capability:multivariate": False,
        "capability:exogenous": True,
        "capability:missing_values": True,
        "capability:insample": True,
        "capability:pred_int": True,
        "capability:pred_int:insample": True,
        "capability:random_state": False,
        "capability:non_contiguous_X": False,
        "capability:update": True,
        "requires-fh-in-fit": False,
        "X-y-must-have-same-index": False,
    }

    def __init__(
        self,
        model: str = "structural",
        season: float | str | Sequence[float] | None = None,
        options: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        particles: int | None = None,
        seed: int = 0,
    ):
        self.model = model
        self.season = season
        self.options = options
        self.settings = settings
        self.particles = particles
        self.seed = seed
        super().__init__()

    def _fit(self, y: pd.Series, X: pd.DataFrame | None, fh: Any) -> McfoForecaster:
        options = dict(self.options or {})
        season = _auto_season(y) if isinstance(self.season, str) and self.season == "auto" else self.season
        if season is not None:
            options["season"] = season
        settings = {"seeds": (self.seed,), **(self.settings or {})}
        self._remember(y, X)
        self.fitted_: Fitted = fit(self.model, self._known, **options, **settings)
        return self

    def _remember(self, y: pd.Series, X: pd.DataFrame | None) -> None:
        self._rows, self._driving, self._known = y, X, _series(y, X)

    def _update(self, y: pd.Series, X: pd.DataFrame | None = None, update_params: bool = True) -> McfoForecaster:
        rows = y.combine_first(self._rows)
        rows.name = self._rows.name
        driving = None if X is None or self._driving is None else X.combine_first(self._driving)
        if update_params:
            return self._fit(rows, driving, None)
        self._remember(rows, driving)
        return self

    def _predict(self, fh: Any, X: pd.DataFrame | None) -> pd.Series:
        mean, _ = self._answers(fh, X, (0.5,))
        return pd.Series(mean, index=fh.to_absolute_index(self.cutoff), name=self._rows.name)

    def _predict_quantiles(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, fh: Any, X: pd.DataFrame | None, alpha: Sequence[float]
    ) -> pd.DataFrame:
        levels = sorted(set(alpha))
        _, quantiles = self._answers(fh, X, tuple(levels))
        columns = pd.MultiIndex.from_product([self._get_varnames(), alpha])
        chosen = quantiles[:, [levels.index(one) for one in alpha]]
        return pd.DataFrame(chosen, index=fh.to_absolute_index(self.cutoff), columns=columns)

    def _answers(self, fh: Any, X: pd.DataFrame | None, levels: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Means and quantiles at the steps of a horizon, which counts from the last row; 0 is the last row itself."""
        ahead = np.asarray(fh.to_relative(self.cutoff).to_pandas(), int)
        mean, quantiles = np.full(len(ahead), np.nan), np.full((len(ahead), len(levels)), np.nan)
        options: dict[str, Any] = {"particles": self.particles, "levels": levels, "seed": self.seed}
        later, steps = ahead > 0, int(ahead.max())
        if later.any():
            inputs = self._coming(X, steps)
            future = self.fitted_.forecast(self._known, _padded(steps), inputs=inputs, **options).isel(series=0)
            rows = ahead[later] - 1
            mean[later] = future["observation_mean"].values[rows, 0]
            quantiles[later] = future["observation_quantiles"].values[rows, :, 0]
        if not later.all():
            rows = len(self._known.values()) - 1 + ahead[~later]
            found = [
                answer(self._known, **options).isel(series=0) for answer in (self.fitted_.filter, self.fitted_.smooth)
            ]
            means = [one["observation_mean"].values[rows, 0] for one in found]
            ends = [one["observation_quantiles"].values[rows, :, 0] for one in found]
            predicted = np.isfinite(means[0])
            mean[~later] = np.where(predicted, *means)
            quantiles[~later] = np.where(predicted[:, None], *ends)
        return mean, quantiles

    def _coming(self, X: pd.DataFrame | None, steps: int) -> np.ndarray | None:
        """The inputs of the coming steps, the last row repeated beyond the horizon."""
        if self._known.inputs is None:
            return None
        if X is None:
            raise ValueError("The forecaster was fitted with X. Give X of the coming steps to predict.")
        rows = X.loc[X.index > self._rows.index[-1]].to_numpy(float)[:steps]
        if len(rows) < steps:
            raise ValueError(
                f"X has {len(rows)} rows after the data, but {steps} are wanted: one for each step up to the last."
            )
        return np.concatenate([rows, np.repeat(rows[-1:], _padded(steps) - steps, axis=0)])

    def _get_fitted_params(self) -> dict[str, Any]:
        summary = self.fitted_.summary(tests=False)
        found: dict[str, Any] = {row.name: row.estimate for row in summary.parameters}
        return {**found, "log_likelihood": summary.log_likelihood, "aic": summary.aic, "bic": summary.bic}

    @classmethod
    def get_test_params(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, parameter_set: str = "default"
    ) -> list[dict[str, Any]]:
        """Return arguments for sktime's tests."""
        return [{"model": "local-level"}, {"season": 4, "options": {"trend": "local"}, "seed": 1}]


def _series(y: pd.Series, X: pd.DataFrame | None) -> Series:
    inputs = None if X is None or not X.shape[1] else X.loc[y.index].to_numpy(float)
    series = Series.from_values(y.to_numpy(float), inputs=inputs)
    # Few lengths, so that few programs are compiled: padding changes nothing.
    return series.pad(_padded(series.steps))


def _padded(steps: int) -> int:
    return max(_LEAST, 1 << (steps - 1).bit_length())


def _auto_season(y: pd.Series) -> float | None:
    frequency = getattr(y.index, "freqstr", None)
    return suggest_period(y.to_numpy(float), frequency)
