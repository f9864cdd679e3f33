"""What a model says of one series: its level, its components with their intervals, and what follows."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtri

from mcfo.data.outlook import CENTRAL, Outlook
from mcfo.inference.datasets import NamedSeries
from mcfo.inference.forecasting import forecast
from mcfo.inference.observation_laws import applied
from mcfo.inference.quantiles import LEVELS
from mcfo.inference.smoothing import smooth, smooth_series
from mcfo.kalman.smoother import jitted_smoother
from mcfo.models.base import Model
from mcfo.models.structural_model import EmittedStructural, GaussianStructural, VolatileStructural
from mcfo.precision import in_float64
from mcfo.proposals.base import Proposal
from mcfo.series import Series
from mcfo.smc.filter import SMC

PATHS = 300
"""Paths from which components are found, where they are not known exactly."""
PARTICLES = 500
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
    smoothed = None
    if isinstance(model, GaussianStructural) and particles is None:
        parts = _exact_parts(model, series)
    elif isinstance(model, Structural):
        parts = _drawn_parts(model, proposal, series, particles or PARTICLES, seed)
    else:
        smoothed = smooth(model, proposal, one, levels=CENTRAL, **sizes).isel(series=0)
        states = np.concatenate([smoothed["latent_mean"].values[:, None], smoothed["latent_quantiles"].values], axis=1)
        parts = {str(name): states[:, :, at] for at, name in enumerate(smoothed["latent"].values)}
    if isinstance(model, Structural):
        # JAX has sorted them by name.
        parts = {name: parts[name] for name in sorted(parts, key=_trend_first)}
    if isinstance(model, GaussianStructural) and model.trend is not None:
        level_name, level = "level", parts["level"][:, :, None]
        if model.transform is not None:
            level = applied(model.transform.inverse, level)
    else:
        found = smoothed
        if found is None:
            found = smooth(model, proposal, one, levels=CENTRAL, **sizes).isel(series=0)
        level_name = "smoothed"
        level = np.concatenate(
            [found["observation_mean"].values[:, None], found["observation_quantiles"].values], axis=1
        )
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
        names=list(parts),
        components=np.stack(list(parts.values())),
        dated=dated,
    )


def _trend_first(name: str) -> int:
    return ("level", "slope", name).index(name)


def _exact_parts(model: GaussianStructural, series: Series) -> dict[str, np.ndarray]:
    """Mean and interval of each component, (steps, 3), by the smoother."""
    low, high = ndtri(CENTRAL)
    found = {}
    for name, (mean, variance) in _component_laws(model, series).items():
        scale = np.sqrt(np.maximum(variance, 0.0))
        found[name] = np.stack([mean, mean + low * scale, mean + high * scale], axis=1)
    return found


@in_float64
@eqx.filter_jit
def _component_laws(model: GaussianStructural, series: Series) -> dict[str, tuple[Array, Array]]:
    smoothed = jitted_smoother(model, series)
    laws = model.component_laws(smoothed.mean, smoothed.covariance, series.sanitized().inputs)
    return {name: (law.mean, law.variance) for name, law in laws.items()}


def _drawn_parts(
    model: EmittedStructural | VolatileStructural | GaussianStructural,
    proposal: Proposal,
    series: Series,
    particles: int,
    seed: int,
) -> dict[str, np.ndarray]:
    """The same from paths of the driven entries, which determine all others."""
    sampler, key = SMC(particles), jax.random.key(seed)
    smoothed = smooth_series(model, proposal, series, key=key, sampler=sampler, paths=PATHS, draws=PATHS)
    assert smoothed.draws is not None
    drawn = _parts_of_paths(model, series, smoothed.draws.latents)
    found = {}
    for name, paths in drawn.items():
        paths = np.asarray(paths, float)
        found[name] = np.stack([paths.mean(axis=1), *np.quantile(paths, CENTRAL, axis=1)], axis=1)
    return found


@eqx.filter_jit
def _parts_of_paths(
    model: EmittedStructural | VolatileStructural | GaussianStructural,
    series: Series,
    latents: Float[Array, "steps paths latent"],
) -> dict[str, Array]:
    inputs, size = series.sanitized().inputs, len(model.driven)
    nothing = jnp.zeros((series.steps, len(model.state_names), len(model.state_names)))

    def of_path(path: Float[Array, "steps latent"]) -> dict[str, Array]:
        def step(memory: Array, latent: Array) -> tuple[Array, Array]:
            state = model.state(memory, latent) if size else memory
            return model.matrix() @ state, state

        states = jax.lax.scan(step, model.initial_state, path[:, :size])[1]
        return {name: law.mean for name, law in model.component_laws(states, nothing, inputs).items()}

    parts = jax.vmap(of_path, in_axes=1, out_axes=1)(latents)
    if isinstance(model, VolatileStructural):
        parts["volatility"] = jnp.exp(latents[:, :, -1] / 2)
    return parts
