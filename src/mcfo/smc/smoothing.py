"""Smoothing distributions, p(z_1:T | x_1:T), from a run with its history.

All three start from the same filter and trade cost for accuracy:

| | result | cost | fails when |
|---|---|---|---|
| genealogy | paths | K T | the series is long: few lineages remain at early steps |
| fixed lag | marginals | K T L | the lag is shorter than the model's memory (bias) |
| backward simulation | paths | N K T | the model is not Markov (refused) |
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from mcfo.missing import log_prob, observed_log_prob
from mcfo.models.base import MarkovModel, Model
from mcfo.series import Series
from mcfo.smc.compatibility import whole_number
from mcfo.smc.resampling import draw_indices
from mcfo.smc.trace import History, Particles, Trace
from mcfo.smc.weights import normalize, uniform_log_weights
from mcfo.types import Key


def genealogy(trace: Trace) -> Particles:
    """Return the ancestral paths of the last step's particles, with their weights.

    Particle i of step t is the ancestor at t of particle i at T. Estimates are consistent in K, and unbiased when
    multiplied by p̂, but the number of distinct ancestors falls with the distance to T.
    """
    history = _history(trace)
    places = jnp.arange(history.latents.shape[1], dtype=jnp.int32)
    latents = _ancestral_paths(history, places)
    return Particles(latents, jnp.broadcast_to(history.log_weights[-1], history.log_weights.shape))


def draw_trajectories(trace: Trace, count: int, *, key: Key) -> Particles:
    """Return whole paths drawn from the weighted genealogy: equally weighted, with repetitions."""
    history = _history(trace)
    count = _at_least(count, 1, "the number of paths")
    places = draw_indices(history.log_weights[-1], count, key=_smoothing_key(key, trace.series_id))
    return _equally_weighted(_ancestral_paths(history, places), history)


def fixed_lag(trace: Trace, lag: int) -> Particles:
    """Return p(z_t | x_1:t+L) for each t: the ancestors at t of the particles of step t + L, with their weights.

    Lag 0 is the filter. The bias against p(z_t | x_1:T) falls as fast as the model forgets; the variance comes from
    L steps of coalescence, however long the series is. Kitagawa and Sato (2001).
    """
    history = _history(trace)
    lag = min(_at_least(lag, 0, "the lag"), len(history.ancestors) - 1)
    return _fixed_lag(history, lag)


@eqx.filter_jit
def _fixed_lag(history: History, lag: int) -> Particles:
    steps = len(history.ancestors)

    def marginal(time):
        later = jnp.minimum(time + lag, steps - 1)
        themselves = jnp.arange(history.ancestors.shape[1], dtype=jnp.int32)

        def back(places, distance):
            step = later - distance
            return jnp.where(step > time, history.ancestors[step][places], places), None

        places, _ = jax.lax.scan(back, themselves, jnp.arange(lag, dtype=jnp.int32))
        return history.latents[time][places], history.log_weights[later]

    return Particles(*jax.lax.map(marginal, jnp.arange(steps, dtype=jnp.int32)))


def backward_simulation(model: Model, trace: Trace, series: Series, count: int, *, key: Key) -> Particles:
    """Return paths drawn backwards: z_T by the last weights, then z_t by W_t p(z_t+1 | z_t) p(x_t+1 | z_t+1, z_t).

    Each of the `count` paths chooses among all K particles at every step, so early steps do not lose diversity.
    The paths are independent given the filter, and consistent for the smoothing distribution in K. Godsill, Doucet and
    West (2004).
    """
    if not isinstance(model, MarkovModel):
        raise ValueError(
            f"Backward simulation needs p(z_t+1 | z_t), but {type(model).__name__} is not a MarkovModel: its next "
            "latent depends on the whole past. Use genealogy() or fixed_lag()."
        )
    history = _history(trace)
    if series.steps != len(history.ancestors):
        raise ValueError(
            f"The trace has {len(history.ancestors)} steps, but the series has {series.steps}. Give the series "
            "that was filtered."
        )
    return _backward_simulation(model, history, series, _at_least(count, 1, "the number of paths"), key)


@eqx.filter_jit
def _backward_simulation(model: MarkovModel, history: History, series: Series, count: int, key: Key) -> Particles:
    clean = series.sanitized()
    present = clean.present()
    last_key, path_key = jax.random.split(_smoothing_key(key, series.series_id))
    last = history.latents[-1][draw_indices(history.log_weights[-1], count, key=last_key)]

    def step(later: Shaped[Array, " count *latent"], now):
        latents, log_weights, (observation, observed, inputs, present_next), key = now

        def log_density(latent, later_latent):
            # The emission matters if it reads the previous latent (leverage, for example); otherwise it is a constant.
            emission = model.emission(latent, later_latent, inputs)
            transition = model.transition(latent, inputs)
            return log_prob(transition, later_latent) + observed_log_prob(emission, observation, observed)

        def choose(later_latent, key):
            log_densities = jax.vmap(lambda latent: log_density(latent, later_latent))(latents)
            return latents[draw_indices(normalize(log_weights + log_densities)[0], 1, key=key)[0]]

        earlier = jax.vmap(choose)(later, jax.random.split(key, count))
        if present_next is not None:
            earlier = jnp.where(present_next, earlier, later)
        return earlier, earlier

    steps = len(history.ancestors)
    rest = (
        history.latents[:-1],
        history.log_weights[:-1],
        jax.tree.map(lambda array: array[1:], (clean.observations, clean.observed, clean.inputs, present)),
        jax.random.split(path_key, steps - 1),
    )
    _, earlier = jax.lax.scan(step, last, rest, reverse=True)
    return _equally_weighted(jnp.concatenate([earlier, last[None]]), history)


_TAG = 0x736D6F6F
"""Separates a smoother's keys from those that the filter derived from the same key."""


def _smoothing_key(key: Key, series_id: Int[Array, ""]) -> Key:
    return jax.random.fold_in(jax.random.fold_in(key, _TAG), series_id)


def _history(trace: Trace) -> History:
    history = trace.require_history()
    if history.ancestors.ndim != 2:
        raise ValueError("This is the trace of a batch. Smooth one series at a time, or use jax.vmap.")
    return history


def _at_least(value: int, smallest: int, name: str) -> int:
    value = whole_number(value)
    if not isinstance(value, int) or value < smallest:
        raise ValueError(f"{name.capitalize()} must be a whole number, at least {smallest}, but got {value!r}.")
    return value


@eqx.filter_jit
def _ancestral_paths(history: History, places: Int[Array, " count"]) -> Shaped[Array, "steps count *latent"]:
    """Return the paths that end in the particles with these indices at the last step."""

    def back(places, step):
        latents, ancestors = step
        return ancestors[places], latents[places]

    return jax.lax.scan(back, places, (history.latents, history.ancestors), reverse=True)[1]


def _equally_weighted(paths: Shaped[Array, "steps count *latent"], history: History) -> Particles:
    count = paths.shape[1]
    log_weights: Float[Array, " count"] = uniform_log_weights(count, history.log_weights.dtype)
    return Particles(paths, jnp.broadcast_to(log_weights, paths.shape[:2]))
