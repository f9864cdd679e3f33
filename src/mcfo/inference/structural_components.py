"""The components of a structural model given the whole series: level, slope, seasons, cycle, regression."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcfo.errors import InputError
from mcfo.inference.smoothing import smooth
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal

if TYPE_CHECKING:
    import xarray


def components(model: Model, proposal: Proposal, data: Any, **options: Any) -> xarray.Dataset:
    """Compute p(component_t | x_1:T) at every step of every series: exactly where that is possible, else by particles.

    `component_mean` has the dimensions (series, time, component), `component_quantiles` (series, time, quantile,
    component). The coordinate `component` has the names: level, slope, season 12, cycle, ar, regression. Their unit is
    that of the signal: the logarithm of the data under a log transform, the log-mean of counts.

    **Arguments:**

    - `options`: those of [`smooth`][mcfo.smooth].
    """
    if not model.component_names:
        raise InputError(
            f"A {type(model).__name__} has no components. Learn a structural model (mcfo.models.structural), or use "
            "smooth(), which has the states of every model."
        )
    return smooth(model, proposal, data, **options)[["component_mean", "component_quantiles"]]
