"""What a model says of one series: its level, its components with their intervals, and what follows."""

from __future__ import annotations

from typing import Any

import numpy as np

from mcfo.data.outlook import CENTRAL, Outlook
from mcfo.inference.datasets import NamedSeries
from mcfo.inference.forecasting import forecast
from mcfo.inference.observation_laws import applied
from mcfo.inference.quantiles import LEVELS
from mcfo.inference.smoothing import smooth
from mcfo.kalman.filter import is_linear_gaussian
from mcfo.models.base import Model
from mcfo.models.structural_model import EmittedStructural, GaussianStructural, VolatileStructural
from mcfo.proposals.base import Proposal

_AHEAD = (5, 50)
"""The least and the most steps of a forecast whose length nobody chose."""

Structural = GaussianStructural | EmittedStructural | VolatileStructural


def default_steps(model: Model, steps: int) -> int:
    """Return how far a figure forecasts: two seasons, otherwise a fifth of the series, within 5 and 50 steps."""
    season = round(2 * max((one.period for one in model.seasons), default=0)) if isinstance(model, Structural) else 0
    return int(np.clip(season or steps // 5, *_AHEAD))


def outlook(
    model: Model,
    proposal: Proposal,
    data: NamedSeries,
    *,
    index: int = 0,
    steps: int | None = None,
    inputs: Any = None,
    particles: int | None = None,
    seed: int = 0,
) -> Outlook:
    """Smooth one series, take it apart, and forecast it.

    **Arguments:**

    - `index`: which of the series.
    - `steps`: the number of steps that are forecast; by default two seasons or a fifth of the series. 0 leaves the
      forecast out, and so does a model whose coming inputs are not known.
    - `inputs`: the coming inputs.
    """
    one = data.choose([index])
    series = one.series_list[0]
    values = series.values()
    length, columns = values.shape
    if steps is None:
        unknown = inputs is None and (bool(data.inputs.names) or (series.inputs is not None and not data.inputs.size))
        steps = 0 if unknown else default_steps(model, length)
    sizes: dict[str, Any] = {"particles": particles, "seed": seed}
    smoothed = smooth(model, proposal, one, levels=CENTRAL, **sizes).isel(series=0)

    def estimates(kind: str) -> np.ndarray:
        """Mean and ends of the interval, (steps, 3, size)."""
        return np.concatenate([smoothed[f"{kind}_mean"].values[:, None], smoothed[f"{kind}_quantiles"].values], axis=1)

    kind = "component" if "component" in smoothed.coords else "latent"
    names, parts = [str(name) for name in smoothed[kind].values], estimates(kind)
    if is_linear_gaussian(model) and kind == "component" and "level" in names:
        level_name, level = "level", parts[:, :, [names.index("level")]]
        if model.observation_transform is not None:
            level = applied(model.observation_transform.inverse, level)
    else:
        level_name, level = "smoothed", estimates("observation")
    dated = data.moments is not None
    x = one.moments[0] if one.moments is not None else np.arange(1, length + 1)
    ahead, mean = x[:0], np.zeros((0, columns))
    quantiles = np.zeros((0, len(LEVELS), columns))
    if steps:
        future = forecast(model, proposal, one, steps, inputs=inputs, **sizes).isel(series=0)
        mean, quantiles = future["observation_mean"].values, future["observation_quantiles"].values
        ahead = future["moment"].values if "moment" in future.coords else length + np.arange(1, steps + 1)
    return Outlook(
        name=one.names[0],
        columns=list(data.columns),
        x=x,
        coming=ahead,
        values=values,
        level_name=level_name,
        level=level,
        levels=np.array(LEVELS),
        mean=mean,
        quantiles=quantiles,
        names=names,
        components=np.moveaxis(parts, 2, 0),
        structural=kind == "component",
        dated=dated,
    )
