"""Filtering, smoothing, forecasting and evaluation of models with finitely many states, by the forward algorithm.

The programs run in float64 whatever the session's precision is. Distributions of observations are mixtures over the
states; nothing is estimated, and there is no effective sample size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mcfo.forward_algorithm import Predictive, forward_backward, forward_filter, predictive_from
from mcfo.missing import observed_log_prob
from mcfo.models.base import Model
from mcfo.precision import in_float64
from mcfo.series import Series
from mcfo.types import Inputs, Key

_CRPS_NODES = 400
"""Quantiles by whose mean a score of a mixture is integrated."""


class MixtureLaws(NamedTuple):
    """Mixtures over the states of a model, for many forecasts of x_t with inputs u_t."""

    model: Model
    log_states: Float[np.ndarray, "*forecasts states"]
    inputs: Float[np.ndarray, "*forecasts inputs"] | None

    def means(self) -> Float[np.ndarray, "*forecasts dimensions"]:
        """E[x]."""
        return self._of_forecasts(lambda law: law.mean)

    def quantiles(self, levels: Any) -> Float[np.ndarray, "*forecasts levels dimensions"]:
        """The quantiles of each dimension."""
        discrete = _is_discrete(self.model, self.inputs)
        return self._of_forecasts(lambda law: law.quantiles(jnp.asarray(levels, float), discrete=discrete))

    def log_density(self, values: Float[np.ndarray, "*forecasts dimensions"]) -> Float[np.ndarray, "*forecasts"]:
        """log p(x) of the dimensions that are not NaN; NaN where there is none."""
        known = ~np.isnan(values)
        # A value that every emission accepts, where none is known.
        filled = np.where(known, values, _harmless(values))

        def density(law: Predictive, value: Array, known: Array) -> Array:
            def of_state(emission: Any) -> Array:
                return observed_log_prob(emission, value[0], known[0])

            emissions = jax.tree.map(lambda array: array[0], law.emissions)
            return jax.nn.logsumexp(law.log_states[0] + jax.vmap(of_state)(emissions))[None]

        return np.where(known.any(axis=-1), self._of_forecasts(density, filled, known), np.nan)

    def below(self, values: Float[np.ndarray, "*forecasts dimensions"]) -> Float[np.ndarray, "*forecasts dimensions"]:
        """P(X ≤ x) for each dimension; of counts and categories P(X < x) + u P(X = x), u uniform from a fixed seed."""
        known = ~np.isnan(values)
        filled = np.where(known, values, _harmless(values))
        found = self._of_forecasts(lambda law, value: law.cdf(value), filled)
        if _is_discrete(self.model, self.inputs):
            before = self._of_forecasts(lambda law, value: law.cdf(value - 1), filled)
            found = before + np.random.default_rng(0).uniform(size=found.shape) * (found - before)
        return np.where(known, found, np.nan)

    def crps(self, values: Float[np.ndarray, "*forecasts dimensions"]) -> Float[np.ndarray, "*forecasts dimensions"]:
        """E|X - x| - E|X - X'| / 2 for each dimension, as twice the mean quantile loss over evenly spaced levels.

        Laio and Tamea (2007). The error of the sum is of order 1 / levels² of the distribution's width.
        """
        levels = (np.arange(_CRPS_NODES) + 0.5) / _CRPS_NODES
        quantiles = self.quantiles(levels)
        beyond = values[..., None, :] - quantiles
        loss = np.where(beyond < 0, levels[:, None] - 1, levels[:, None]) * beyond
        return 2 * np.mean(loss, axis=-2)

    def _of_forecasts(self, function: Any, *beside: np.ndarray) -> np.ndarray:
        """`function` of the distribution of each forecast, which has one step."""
        shape = self.log_states.shape[:-1]
        rows = [array.reshape(-1, 1, *array.shape[len(shape) :]) for array in (self.log_states, *beside)]
        inputs = None if self.inputs is None else self.inputs.reshape(-1, 1, self.inputs.shape[-1])
        found = _mapped(function, self.model, rows, inputs)
        return np.asarray(found).reshape(*shape, *found.shape[2:])


@in_float64
def _mapped(function: Any, model: Model, rows: list[Any], inputs: np.ndarray | None) -> Any:
    def one(model: Model, rows: list[Any], inputs: Any) -> Array:
        log_states, *beside = rows
        now = None if inputs is None else inputs[0]
        emissions = _emissions(model, now)
        law = Predictive(log_states, jax.tree.map(lambda array: array[None], emissions))
        return function(law, *beside)

    return eqx.filter_jit(jax.vmap(one, in_axes=(None, 0, 0)))(model, rows, inputs)


def _emissions(model: Model, inputs: Inputs) -> Any:
    states = jnp.arange(model.finite_states, dtype=jnp.int32)
    return jax.vmap(lambda state: model.emission(None, state, inputs))(states)


def _is_discrete(model: Model, inputs: Any) -> bool:
    """Whether the emission has whole numbers."""
    now = None if inputs is None else np.asarray(inputs).reshape(-1, inputs.shape[-1])[0]
    emission: Any = model.emission(None, jnp.zeros((), jnp.int32), now)
    support: Any = emission.support
    return bool(support.is_discrete)


def _harmless(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known[0]) if len(known) else 1.0


def filtered(model: Model, series: Series) -> tuple[np.ndarray, MixtureLaws, np.ndarray]:
    """Return P(z_t | x_1:t), p(x_t | x_1:t-1) and log p(x_t | x_1:t-1) for every step."""
    log_predicted, log_filtered, log_evidences = _filtered(model, series)
    return np.exp(log_filtered), MixtureLaws(model, log_predicted, _inputs(series)), log_evidences


@in_float64
def _filtered(model: Model, series: Series) -> tuple[Any, Any, Any]:
    result = forward_filter(model, series)
    return result.log_predicted, result.log_filtered, result.log_evidences


def _inputs(series: Series) -> np.ndarray | None:
    return None if series.inputs is None else np.asarray(series.sanitized().inputs, np.float64)


def filter_arrays(
    model: Model, series: Series, levels: Sequence[float], draws: int, *, key: Key
) -> dict[str, np.ndarray]:
    """Return what is known of the steps of one series, by the names of a data set."""
    probabilities, predicted, log_evidences = filtered(model, series)
    arrays = _state_arrays(probabilities, predicted, log_evidences, levels)
    if draws:
        of_states, of_values = jax.random.split(jax.random.fold_in(key, series.series_id))
        states = _drawn_states(np.log(probabilities), draws, of_states)
        origins = _drawn_states(predicted.log_states, draws, of_values)
        observations = _drawn_values(model, origins, _inputs(series), of_values)
        arrays |= {"latent_draws": np.eye(probabilities.shape[-1])[states], "observation_draws": observations}
    return arrays


def smooth_arrays(
    model: Model, series: Series, levels: Sequence[float], draws: int, *, key: Key
) -> dict[str, np.ndarray]:
    """Return P(z_t | x_1:T) and the distribution of x_t given x_1:T, by the names of a data set."""
    log_states, log_pairs = _smoothed(model, series)
    laws = MixtureLaws(model, log_states, _inputs(series))
    arrays = _state_arrays(np.exp(log_states), laws, _filtered(model, series)[2], levels)
    values = np.where(np.asarray(series.mask()), np.asarray(series.observations, np.float64), np.nan)
    arrays["filled"] = np.where(np.isnan(values), arrays["observation_mean"], values)
    if draws:
        of_states, of_values = jax.random.split(jax.random.fold_in(key, series.series_id))
        states = _drawn_paths(log_states[0], log_pairs, draws, of_states)
        observations = _drawn_values(model, states, _inputs(series), of_values)
        arrays |= {"latent_draws": np.eye(log_states.shape[-1])[states], "observation_draws": observations}
    return arrays


@in_float64
def _smoothed(model: Model, series: Series) -> tuple[Any, Any]:
    result = forward_backward(model, series)
    return result.log_states, result.log_pairs


def forecast_arrays(
    model: Model, series: Series, steps: int, inputs: Any, levels: Sequence[float], draws: int, *, key: Key
) -> dict[str, np.ndarray]:
    """Return a forecast by the names of a data set; its draws are paths."""
    coming = None if inputs is None else np.asarray(inputs, np.float64)
    last = _filtered(model, series)[1][-1]
    laws = MixtureLaws(model, _ahead(model, last, steps, coming), coming)
    of_states, of_values = jax.random.split(jax.random.fold_in(key, series.series_id))
    states = _simulated_states(model, last, steps, coming, draws, of_states)
    arrays = _state_arrays(np.exp(laws.log_states), laws, np.zeros(steps), levels)
    kept = {name: arrays[name] for name in arrays if name.startswith(("latent", "observation"))}
    return kept | {
        "finite": np.asarray(bool(np.isfinite(last).any())),
        "latent_draws": np.eye(len(last))[states],
        "observation_draws": _drawn_values(model, states, coming, of_values),
    }


@in_float64
def _ahead(model: Model, log_states: Any, steps: int, inputs: Any) -> Any:
    return predictive_from(model, jnp.asarray(log_states), steps, inputs).log_states


def rolling(model: Model, series: Series, horizon: int) -> tuple[MixtureLaws, np.ndarray]:
    """Return p(x_t+s | x_1:t) for t = 0..T-1 and s = 1..`horizon`, (steps, horizon), and log p(x_t | x_1:t-1)."""
    log_predicted, _, log_evidences = _filtered(model, series)
    inputs = _inputs(series)
    ahead = None
    if inputs is not None:
        # Beyond the end there are no inputs; what is forecast there is not scored.
        padded = np.concatenate([inputs, np.repeat(inputs[-1:], horizon - 1, axis=0)])
        ahead = np.stack([padded[step : step + len(inputs)] for step in range(horizon)], axis=1)
    log_states = [log_predicted]
    if horizon > 1:
        log_states.append(_further(model, log_predicted, horizon - 1, None if ahead is None else ahead[:, 1:]))
    stacked = np.concatenate([log_states[0][:, None], *log_states[1:]], axis=1)
    return MixtureLaws(model, stacked, ahead), log_evidences


@in_float64
@eqx.filter_jit
def _further(model: Model, log_states: Array, steps: int, inputs: Any) -> Any:
    return jax.vmap(lambda now, inputs: predictive_from(model, now, steps, inputs).log_states)(log_states, inputs)


def _state_arrays(
    probabilities: np.ndarray, laws: MixtureLaws, log_evidences: np.ndarray, levels: Sequence[float]
) -> dict[str, np.ndarray]:
    # The quantiles of an indicator: zero up to the probability that it is zero.
    at = np.asarray(levels, np.float64)[None, :, None]
    indicators = (at > 1 - probabilities[:, None]).astype(float)
    return {
        "latent_mean": probabilities,
        "latent_quantiles": indicators,
        "observation_mean": laws.means(),
        "observation_quantiles": laws.quantiles(levels),
        "ess": np.full(len(probabilities), np.nan),
        "log_predictive": log_evidences,
        "log_evidence": np.asarray(np.sum(log_evidences)),
    }


@in_float64
def _drawn_states(log_states: np.ndarray, draws: int, key: Key) -> Any:
    shape = (len(log_states), draws)
    return jax.random.categorical(key, jnp.asarray(log_states)[:, None], shape=shape).astype(jnp.int32)


@in_float64
@eqx.filter_jit
def _drawn_paths(log_first: Array, log_pairs: Array, draws: int, key: Key) -> Any:
    """Draw paths of states from the smoothing distribution, (steps, draws)."""
    of_first, of_rest = jax.random.split(key)
    first = jax.random.categorical(of_first, log_first, shape=(draws,))

    def step(states: Array, now: Any) -> tuple[Array, Array]:
        log_pair, key = now
        later = jax.random.categorical(key, log_pair[states])
        return later, later

    rest = jax.lax.scan(step, first, (log_pairs, jax.random.split(of_rest, len(log_pairs))))[1]
    return jnp.concatenate([first[None], rest]).astype(jnp.int32)


@in_float64
@eqx.filter_jit
def _simulated_states(model: Model, log_last: Array, steps: int, inputs: Any, draws: int, key: Key) -> Any:
    of_first, of_rest = jax.random.split(key)
    last = jax.random.categorical(of_first, jnp.asarray(log_last), shape=(draws,)).astype(jnp.int32)

    def step(states: Array, now: Any) -> tuple[Array, Array]:
        inputs, key = now
        keys = jax.random.split(key, draws)
        later = jax.vmap(lambda state, key: model.transition(state, inputs).sample(key))(states, keys)
        return later.astype(jnp.int32), later.astype(jnp.int32)

    return jax.lax.scan(step, last, (inputs, jax.random.split(of_rest, steps)))[1]


@in_float64
@eqx.filter_jit
def _drawn_values(model: Model, states: Array, inputs: Any, key: Key) -> Any:
    """Draw x_t in each drawn state, (steps, draws, dimensions)."""
    keys = jax.random.split(key, states.shape)

    def of_step(states: Array, inputs: Any, keys: Any) -> Array:
        return jax.vmap(lambda state, key: model.emission(None, state, inputs).sample(key))(states, keys)

    return jax.vmap(of_step)(states, inputs, keys).astype(float)
