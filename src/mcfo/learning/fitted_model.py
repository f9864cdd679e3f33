"""What a learned model can do, whether it was just fitted or loaded: answers, scores, a summary and figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from mcfo.data.column_layout import DefaultColumns
from mcfo.data.export import to_frame
from mcfo.data.frames import is_frame
from mcfo.data.inspection import MOST_COLUMNS
from mcfo.data.residual_tests import residual_tests
from mcfo.data.run_columns import NO_INPUTS, Inputs, coming_inputs
from mcfo.errors import InputError
from mcfo.inference.appending import appended
from mcfo.inference.datasets import NamedSeries, named_series
from mcfo.inference.evaluation import evaluate, usual_repeats
from mcfo.inference.evaluation_results import Evaluation
from mcfo.inference.filtering import filter
from mcfo.inference.forecasting import forecast
from mcfo.inference.outlook import outlook
from mcfo.inference.quantiles import LEVELS
from mcfo.inference.residuals import standardized_residuals
from mcfo.inference.rolling_evaluation import evaluate_rolling
from mcfo.inference.smoothing import smooth
from mcfo.kalman.filter import is_linear_gaussian
from mcfo.learning.parameters import Modules, split
from mcfo.learning.readable import readable_arrays, readable_fixed
from mcfo.models.base import Model
from mcfo.models.structural_model import EmittedStructural, GaussianStructural, VolatileStructural
from mcfo.proposals.base import Proposal
from mcfo.reports.formatting import counted, listed, number_name, parameter_name
from mcfo.reports.model_page import notebook_page
from mcfo.reports.model_plots import draw_components, draw_fit, draw_forecast
from mcfo.reports.summary import FitSummary, ParameterRow

if TYPE_CHECKING:
    import pandas
    import xarray

_SMALL, _ROWS = 16, 64
"""Entries of an array, and of all, that a summary lists one by one."""


class FittedModel:
    """A learned model, its proposal and the data that it learned from."""

    if TYPE_CHECKING:

        @property
        def model(self) -> Model: ...

        @property
        def proposal(self) -> Proposal: ...

        @property
        def evaluation(self) -> Evaluation | None: ...

    @property
    def title(self) -> str:
        """The name of the model and its options."""
        return type(self.model).__name__

    @property
    def history(self) -> NamedSeries:
        """The series that it learned from, with their names and times."""
        raise NotImplementedError

    @property
    def fixed(self) -> Sequence[str]:
        """The parameters that were not learned."""
        return ()

    @property
    def on_learning_data(self) -> bool:
        """Whether the evaluation is of the data that it learned from."""
        return True

    @property
    def uncertainty(self) -> Any:
        """Standard errors and intervals: `rows` of (name, estimate, stderr, low, high), and `notes`; None if there
        are none."""
        return None

    @property
    def warnings(self) -> list[str]:
        """What to worry about, in sentences."""
        return []

    def filter(self, data: Any = None, **options: Any) -> xarray.Dataset:
        """Compute p(z_t | x_1:t) and p(x_t | x_1:t-1) for every step: [`filter`][mcfo.filter].

        `data` is a file, a data frame, a table of `read_series`, series or an array; by default what it learned from.
        The options are `particles`, `levels`, `draws` and `seed`.
        """
        return filter(self.model, self.proposal, self._read(data), **options)

    def smooth(self, data: Any = None, **options: Any) -> xarray.Dataset:
        """Compute p(z_t | x_1:T) for every step, and fill in missing values: [`smooth`][mcfo.smooth].

        The options are those of `filter`, and `paths`.
        """
        return smooth(self.model, self.proposal, self._read(data), **options)

    def forecast(self, data: Any, steps: int, **options: Any) -> xarray.Dataset:
        """Forecast the steps after the last one: [`forecast`][mcfo.forecast]; `data` may be None, as in `filter`.

        The options are those of `filter`, and `inputs`, the inputs of the coming steps. Where the time between steps is
        the only input, it is one unit by default; calendar inputs are made from the coming dates.
        """
        data = self._read(data)
        if options.get("inputs") is None and not named_series(data).inputs.size:
            options["inputs"] = coming_inputs(self._inputs(), steps)
        return forecast(self.model, self.proposal, data, steps, **options)

    def predict(
        self,
        steps: int,
        *,
        data: Any = None,
        inputs: Any = None,
        levels: Sequence[float] = LEVELS,
        **options: Any,
    ) -> pandas.DataFrame:
        """Forecast as a data frame: the mean and the quantiles of each coming step, in the form that the data had.

            fitted = mcfo.fit("structural", passengers, season=12)
            fitted.predict(12)  # its index continues that of passengers; its columns are mean, q05, ..., q95

        **Arguments:**

        - `data`: what is forecast instead of the data that it learned from.
        - `inputs`: those of the coming steps, (steps, inputs) or a data frame, if the model has any.
        - `options`: `particles` and `seed`.
        """
        rows = inputs.to_numpy(float) if hasattr(inputs, "to_numpy") else inputs
        return to_frame(self.forecast(data, steps, levels=levels, inputs=rows, **options))

    def score(self, data: Any = None, *, horizon: int = 1, season: float | int | None = None, **options: Any) -> Any:
        """Score forecasts of every step, beside naive ones: a data frame of log scores, CRPS, RMSE and coverage.

        Of rows that follow those that it learned from, all that came before is known to each forecast, and the new
        rows alone are scored. Without `data` the score is in-sample, and too good.

        **Arguments:**

        - `horizon`: steps ahead, from each origin.
        - `season`: the steps in a season, for the seasonal naive forecast; by default that of the model.
        - `options`: of [`evaluate_rolling`][mcfo.evaluate_rolling].
        """
        import pandas as pd

        season = self._season() if season is None else season
        whole = self.history if data is None else None
        if whole is None:
            known = self._known()
            new = named_series(self._read(data))
            if known is None:
                whole = new
            else:
                whole, lengths = appended(known, new)
                ends = [len(one.values()) - length for one, length in zip(whole.series_list, lengths, strict=True)]
                if all(end > 0 for end in ends) and any(lengths) and len(set(ends)) == 1:
                    options.setdefault("last", ends[0])
        rounded = None if season is None or season < 2 else round(season)
        scored = evaluate_rolling(
            self.model, self.proposal, whole.series_list, horizon=horizon, season=rounded, **options
        )
        rows = []
        for name, scores in {"model": scored.scores, **scored.naive}.items():
            for one in scores:
                row = {key: value for key, value in one._asdict().items() if key != "pit"}
                rows.append({"forecast": name, **row})
        return pd.DataFrame(rows).set_index(["forecast", "ahead"])

    def residuals(self, *, particles: int | None = None, seed: int = 0) -> list[np.ndarray]:
        """Return the standardized one-step errors of each series: independent N(0, 1) if the model is right."""
        series_list = self.history.series_list
        return standardized_residuals(
            self.model, self.proposal, series_list, particles=particles, key=jax.random.key(seed)
        )

    def summary(self, *, tests: bool = True) -> FitSummary:
        """Return parameters, likelihood, AIC, BIC and tests of the residuals; it prints as a table.

        **Arguments:**

        - `tests`: whether residuals are tested, which needs the data.
        """
        named, evaluation, notes = self._known(), self._own_evaluation(), list(self.warnings)
        uncertainty = self.uncertainty
        rows = self._parameters()
        if uncertainty is not None:
            rows = [ParameterRow(number_name(name), *numbers) for name, *numbers in uncertainty.rows]
        notes += [] if uncertainty is None else list(uncertainty.notes)
        found, season = {}, self._season()
        if named is None:
            notes.append("The data are not at hand, so that residuals are not tested and steps are those with values.")
        elif tests and len(named.columns) <= MOST_COLUMNS:
            residuals = self.residuals()
            for index, column in enumerate(named.columns):
                found[column] = residual_tests([one[:, index] for one in residuals], season=season)
        value = math.nan if evaluation is None else evaluation.log_evidence
        error = None if evaluation is None else evaluation.log_evidence_error
        observations = 0 if named is None else sum(int(np.sum(~np.isnan(one.values()))) for one in named.series_list)
        steps = (
            (0 if evaluation is None else evaluation.steps)
            if named is None
            else sum(len(one.values()) for one in named.series_list)
        )
        return FitSummary(
            title=self.title,
            data=self._data_text(),
            parameters=tuple(rows),
            log_likelihood=value,
            log_likelihood_error=error,
            exact=evaluation is not None and evaluation.exact,
            observations=observations or steps,
            steps=steps,
            learned=self._count_learned(),
            diffuse=self._count_diffuse(),
            tests=found,
            notes=tuple(notes),
            uncertainty="" if uncertainty is None else f"Standard errors: {uncertainty.method}.",
        )

    def plot(self, steps: int | None = None, *, series: int = 0, **options: Any) -> Any:
        """Draw the data, the level that the model sees in them, and a forecast; a matplotlib figure.

        **Arguments:**

        - `steps`: how far it forecasts; by default two seasons, or a fifth of the series. 0 is not at all.
        - `series`: which of several series, from 0.
        - `options`: `inputs`, `particles` and `seed`.
        """
        return draw_fit(outlook(self.model, self.proposal, self.history, index=series, steps=steps, **options))

    def plot_components(self, *, series: int = 0, **options: Any) -> Any:
        """Draw each component of a structural model, or each state of another, with its 90 % interval."""
        return draw_components(outlook(self.model, self.proposal, self.history, index=series, steps=0, **options))

    def plot_forecast(self, steps: int | None = None, *, series: int = 0, **options: Any) -> Any:
        """Draw the last observations and the forecast. The arguments are those of `plot`."""
        return draw_forecast(outlook(self.model, self.proposal, self.history, index=series, steps=steps, **options))

    def __repr__(self) -> str:
        evaluation = self.evaluation
        value = "" if evaluation is None else f"; log-likelihood {evaluation.log_evidence:.4f}"
        exact = " (exact)" if evaluation is not None and evaluation.exact else ""
        return f"<{type(self).__name__} {self.title}; {self._data_text()}{value}{exact}; .summary() says more>"

    def _repr_html_(self) -> str:
        summary, known, figures = self.summary(), self._known(), []
        if known is not None and len(known.columns) <= MOST_COLUMNS:
            seen = outlook(self.model, self.proposal, known)
            figures = [("Data, level and forecast.", draw_fit(seen)), ("Components.", draw_components(seen))]
        return notebook_page(summary, figures)

    def _read(self, data: Any) -> Any:
        """Read a file or a data frame with the model's inputs; other data are read later. None is the history."""
        if data is None:
            return self.history
        if isinstance(data, str | Path) or is_frame(data):
            return self._inputs().read(data)
        return data

    def _inputs(self) -> Inputs:
        """The inputs of the model, and the columns by which other tables are read."""
        known = self._known()
        return NO_INPUTS if known is None else known.inputs._replace(defaults=DefaultColumns(known.columns))

    def _known(self) -> NamedSeries | None:
        """The history if it is at hand."""
        try:
            return self.history
        except InputError:
            return None

    def _own_evaluation(self) -> Evaluation | None:
        """The evaluation of the data that it learned from."""
        known = self._known()
        if self.on_learning_data or known is None:
            return self.evaluation
        repeats = usual_repeats(self.model, self.proposal)
        return evaluate(self.model, self.proposal, known.series_list, repeats=repeats)

    def _season(self) -> float | int | None:
        if not isinstance(self.model, GaussianStructural | EmittedStructural | VolatileStructural):
            return None
        return max((one.period for one in self.model.seasons), default=None)

    def _data_text(self) -> str:
        known = self._known()
        if known is None:
            return "data not at hand"
        lengths = [len(one.values()) for one in known.series_list]
        steps = f"{lengths[0]}" if len(set(lengths)) == 1 else f"{min(lengths)} to {max(lengths)}"
        names = listed(known.columns if len(known.columns) <= 4 else [*known.columns[:3], "more"])
        series = f"{counted(len(lengths), 'series', 'series')} of " * (len(lengths) > 1)
        return f"{names}, {series}{steps} steps" + _span(known)

    def _count_learned(self) -> int:
        learned, _ = split(Modules(self.model, self.proposal), self.fixed)
        return sum(int(np.size(leaf)) for leaf in jax.tree.leaves(learned.model))

    def _count_diffuse(self) -> int:
        if not is_linear_gaussian(self.model):
            return 0
        form = jax.eval_shape(lambda: self.model.initial_form(None))
        return 0 if form is None else int(form.diffuse.shape[1])

    def _parameters(self) -> list[ParameterRow]:
        """The learned parameters of the model that are short enough to be listed."""
        modules = Modules(self.model, self.proposal)
        held, rows = set(readable_fixed(modules, self.fixed)), []
        for name, array in readable_arrays(modules).items():
            values = np.asarray(array, float)
            if name in held or not name.startswith("model.") or not 0 < values.size <= _SMALL:
                continue
            for index in np.ndindex(values.shape):
                label = parameter_name(name) + (f" [{', '.join(map(str, index))}]" if values.size > 1 else "")
                rows.append(ParameterRow(label, float(values[index])))
        return rows[:_ROWS]


def _span(known: NamedSeries) -> str:
    """From when to when, where times are known."""
    if known.moments is None or len(known.moments) != 1:
        return ""
    moments = known.moments[0]
    if moments.dtype.kind == "M":
        days = np.datetime_as_string(moments[[0, -1]], unit="D")
        return f" from {days[0]} to {days[1]}"
    return f" from {moments[0]:g} to {moments[-1]:g}"


def model_title(name: str, options: Mapping[str, Any]) -> str:
    """The name of a model and the options that were chosen, as people read them."""
    chosen = [f"{key} {_option(value)}" for key, value in options.items() if value is not None]
    return f"{name} ({', '.join(chosen)})" if chosen else name


def _option(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
