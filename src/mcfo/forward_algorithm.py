"""The exact answers for models with finitely many states: likelihood, filter, smoother, best path, forecasts.

They serve any `MarkovModel` whose latent is one of 0, ..., K - 1 and which says so by its `finite_states`, also one of
the user's own: all probabilities are those of its own `initial`, `transition` and `emission`. They are computed in
logarithms, in K² T; missing values are integrated out, dimension by dimension; padded steps do not exist.
Rabiner (1989).
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from mcfo.missing import log_prob, observed_log_prob
from mcfo.models.base import MarkovModel, Model
from mcfo.series import Series
from mcfo.types import Inputs, Scalar


class ForwardPass(eqx.Module):
    """log P(z_t | x_1:t-1), log P(z_t | x_1:t), and log p(x_t | x_1:t-1), for t = 1..T."""

    log_predicted: Float[Array, "*steps states"]
    log_filtered: Float[Array, "*steps states"]
    log_evidences: Float[Array, "*steps"]

    @property
    def log_evidence(self) -> Float[Array, "*batch"]:
        """log p(x_1:T)."""
        return jnp.sum(self.log_evidences, axis=-1)


class Marginals(eqx.Module):
    """log P(z_t | x_1:T) for t = 1..T, and log P(z_t, z_t+1 | x_1:T) for t = 1..T-1.

    Where a step is padding, the marginals are those of the last step that is not, and the pairs mean nothing.
    """

    log_states: Float[Array, "steps states"]
    log_pairs: Float[Array, "pairs states states"]


class Trellis(eqx.Module):
    """The log-probabilities of a series: log P(z_1), log P(z_t | z_t-1) for t = 2..T, log p(x_t | z_t) for t = 1..T."""

    log_initial: Float[Array, " states"]
    log_transitions: Float[Array, "pairs states states"]
    log_likelihoods: Float[Array, "steps states"]

    @property
    def first(self) -> Float[Array, " states"]:
        """log p(z_1, x_1)."""
        return self.log_initial + self.log_likelihoods[0]

    @property
    def steps(self) -> Float[Array, "pairs states states"]:
        """log p(z_t, x_t | z_t-1) for t = 2..T."""
        return self.log_transitions + self.log_likelihoods[1:, None]


def is_finite(model: Any) -> bool:
    """Whether the forward algorithm is exact for this model."""
    return isinstance(model, MarkovModel) and model.finite_states is not None


def forward_filter(model: Model, series: Series) -> ForwardPass:
    """The exact filter. Baum and Petrie (1966)."""
    return _forward(trellis(model, series), series)


def log_evidence(model: Model, series: Series) -> Scalar:
    """log p(x_1:T), exactly; its derivative by `jax.grad` is the exact score."""
    return forward_filter(model, series).log_evidence


def trellis(model: Model, series: Series) -> Trellis:
    """Compute the log-probabilities of every step from the model's own methods."""
    _check(model, series)
    return _trellis(model, series)


@eqx.filter_jit
def _trellis(model: Model, series: Series) -> Trellis:
    frames = series.sanitized().frames(None)
    states = jnp.arange(model.finite_states, dtype=jnp.int32)
    start, later = (jax.tree.map(lambda array, part=part: array[part], frames) for part in (0, slice(1, None)))
    _check_emission(model, states, start.inputs)

    def log_likelihoods(frame: Any) -> Array:
        def of_state(state: Int[Array, ""]) -> Scalar:
            emission = model.emission(None, state, frame.inputs)
            return observed_log_prob(emission, frame.observation, frame.observed)

        return jax.vmap(of_state)(states)

    memory = model.start(start.inputs)
    initial = model.initial(memory, start.inputs)
    return Trellis(
        jax.vmap(lambda state: log_prob(initial, state))(states),
        jax.vmap(lambda frame: _log_transition(model, states, frame.inputs))(later),
        jax.vmap(log_likelihoods)(frames),
    )


def _log_transition(model: Model, states: Array, inputs: Inputs) -> Array:
    def from_state(last: Array) -> Array:
        prior = model.transition(last, inputs)
        return jax.vmap(lambda state: log_prob(prior, state))(states)

    return jax.vmap(from_state)(states)


def _check_emission(model: Model, states: Array, inputs: Inputs) -> None:
    """Refuse an emission that reads the last state."""

    def of_last(last: Array) -> Any:
        return jax.tree.leaves(model.emission(last, states[0], inputs))

    try:
        # What depends on the mapped argument cannot be returned without its axis.
        jax.eval_shape(jax.vmap(of_last, out_axes=None), states)
    except ValueError as error:
        if "out_axes" not in str(error):
            raise
        raise ValueError(
            f"The emission of {type(model).__name__} reads the last state, but the forward algorithm wants "
            "p(x_t | z_t). Let the state be the pair of both, or leave out `finite_states` and use SMC."
        ) from error


@eqx.filter_jit
def _forward(table: Trellis, series: Series) -> ForwardPass:
    def step(log_filtered: Array, now: Any) -> tuple[Array, tuple[Array, Array, Scalar]]:
        log_joint, log_transition, present = now
        log_predicted = _log_sum(log_filtered[:, None] + log_transition, axis=0)
        log_states = _log_sum(log_filtered[:, None] + log_joint, axis=0)
        increment = _log_sum(log_states, axis=0)
        later = log_states - increment
        if present is not None:
            later, increment = jnp.where(present, later, log_filtered), jnp.where(present, increment, 0.0)
            log_predicted = jnp.where(present, log_predicted, log_filtered)
        return later, (log_predicted, later, increment)

    increment = _log_sum(table.first, axis=0)
    log_first = table.first - increment
    _, rest = jax.lax.scan(step, log_first, (table.steps, table.log_transitions, _present(series)))
    first = table.log_initial, log_first, increment
    return ForwardPass(*jax.tree.map(lambda one, others: jnp.concatenate([one[None], others]), first, rest))


def forward_backward(model: Model, series: Series) -> Marginals:
    """The exact smoother. Baum et al. (1970)."""
    table = trellis(model, series)
    return _marginals(table, _forward(table, series), series)


@eqx.filter_jit
def _marginals(table: Trellis, forward: ForwardPass, series: Series) -> Marginals:
    def step_back(log_future: Array, now: Any) -> tuple[Array, tuple[Array, Array]]:
        log_joint, log_filtered, present = now
        log_pair = log_filtered[:, None] + log_joint + log_future[None, :]
        log_pair = log_pair - _log_sum(log_pair, axis=(0, 1))
        earlier = _log_sum(log_joint + log_future[None, :], axis=1)
        earlier = earlier - jnp.max(earlier)
        if present is not None:
            earlier = jnp.where(present, earlier, log_future)
        return earlier, (earlier, log_pair)

    nothing = jnp.zeros_like(table.first)
    xs = (table.steps, forward.log_filtered[:-1], _present(series))
    _, (log_futures, log_pairs) = jax.lax.scan(step_back, nothing, xs, reverse=True)
    log_states = forward.log_filtered + jnp.concatenate([log_futures, nothing[None]])
    return Marginals(log_states - _log_sum(log_states, axis=-1)[:, None], log_pairs)


def viterbi(model: Model, series: Series) -> Int[Array, " steps"]:
    """The most probable path of all, argmax p(z_1:T | x_1:T); padded steps repeat its last state. Viterbi (1967)."""
    return _viterbi(trellis(model, series), series)


@eqx.filter_jit
def _viterbi(table: Trellis, series: Series) -> Int[Array, " steps"]:
    states = jnp.arange(len(table.first), dtype=jnp.int32)

    def step(best: Array, now: Any) -> tuple[Array, Array]:
        log_joint, present = now
        scores = best[:, None] + log_joint
        later, origins = jnp.max(scores, axis=0), jnp.argmax(scores, axis=0).astype(jnp.int32)
        if present is not None:
            later, origins = jnp.where(present, later, best), jnp.where(present, origins, states)
        return later, origins

    best, origins = jax.lax.scan(step, table.first, (table.steps, _present(series)))
    last = jnp.argmax(best).astype(jnp.int32)
    _, earlier = jax.lax.scan(lambda state, now: (now[state], now[state]), last, origins, reverse=True)
    return jnp.append(earlier, last)


class Predictive(eqx.Module):
    """The predictive distributions of h steps: mixtures over the states of each step.

    - `log_states`: log P(z_T+s | x_1:T), s = 1..h.
    - `emissions`: the distributions of x_T+s in each state, with leading axes over steps and states.
    """

    log_states: Float[Array, "steps states"]
    emissions: Any

    def log_prob(self, values: Float[Array, "steps dimensions"]) -> Float[Array, " steps"]:
        """log p(x_T+s | x_1:T), for s = 1..h."""

        def of_step(log_states: Array, emissions: Any, value: Array) -> Scalar:
            return _log_sum(log_states + jax.vmap(lambda one: log_prob(one, value))(emissions), axis=0)

        return jax.vmap(of_step)(self.log_states, self.emissions, values)

    @property
    def mean(self) -> Float[Array, "steps dimensions"]:
        """E[x_T+s | x_1:T]."""
        means = jax.vmap(jax.vmap(lambda one: one.mean))(self.emissions)
        return jnp.einsum("tk,tkd->td", jnp.exp(self.log_states), means)

    def cdf(self, values: Float[Array, "steps dimensions"]) -> Float[Array, "steps dimensions"]:
        """P(x_T+s <= value | x_1:T) in each column, of emissions whose columns are independent."""

        def of_step(log_states: Array, emissions: Any, value: Array) -> Array:
            return jnp.exp(log_states) @ jax.vmap(lambda one: one.base_dist.cdf(value))(emissions)

        return jax.vmap(of_step)(self.log_states, self.emissions, values)

    def quantiles(self, levels: Float[Array, " levels"], *, discrete: bool) -> Float[Array, "steps levels dimensions"]:
        """The smallest value of each column at which `cdf` reaches each level; whole numbers if `discrete`."""
        means = jax.vmap(jax.vmap(lambda one: one.mean))(self.emissions)
        spreads = jnp.sqrt(jax.vmap(jax.vmap(lambda one: one.variance))(self.emissions))
        # Chebyshev's inequality bounds the quantiles of each state, hence those of their mixture.
        reach = jnp.sqrt(1 / jnp.minimum(levels, 1 - levels))[None, :, None]
        low = jnp.min(means, axis=1)[:, None] - reach * jnp.max(spreads, axis=1)[:, None]
        high = jnp.max(means, axis=1)[:, None] + reach * jnp.max(spreads, axis=1)[:, None]
        if discrete:
            low, high = jnp.maximum(jnp.floor(low), 0.0) - 1, jnp.ceil(high)
        of_levels = jax.vmap(self.cdf, in_axes=1, out_axes=1)

        def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = jnp.floor((low + high) / 2) if discrete else (low + high) / 2
            reached = of_levels(middle) >= levels[None, :, None]
            return jnp.where(reached, low, middle), jnp.where(reached, middle, high)

        return jax.lax.fori_loop(0, 64, halve, (low, high))[1]


def predictive(model: Model, series: Series, steps: int, inputs: Any = None) -> Predictive:
    """The predictive distributions of the `steps` steps after the last one of a series.

    **Arguments:**

    - `inputs`: the coming inputs, (steps, inputs), for a model that takes them.
    """
    log_last = forward_filter(model, series).log_filtered[-1]
    return predictive_from(model, log_last, steps, inputs)


@eqx.filter_jit
def predictive_from(model: Model, log_states: Float[Array, " states"], steps: int, inputs: Any = None) -> Predictive:
    """The predictive distributions of the `steps` steps after one with these probabilities of the states."""
    states = jnp.arange(model.finite_states, dtype=jnp.int32)

    def step(log_states: Array, now: Inputs) -> tuple[Array, tuple[Array, Any]]:
        later = _log_sum(log_states[:, None] + _log_transition(model, states, now), axis=0)
        return later, (later, jax.vmap(lambda state: model.emission(None, state, now))(states))

    return Predictive(*jax.lax.scan(step, log_states, inputs, length=steps)[1])


def _present(series: Series) -> Any:
    present = series.present()
    return None if present is None else present[1:]


def _log_sum(values: Array, axis: Any) -> Array:
    """`logsumexp` whose gradient is zero, not NaN, where all values are -inf."""
    possible = jnp.max(values, axis=axis, keepdims=True) > -jnp.inf
    total = jax.nn.logsumexp(jnp.where(possible, values, 0.0), axis=axis)
    return jnp.where(jnp.squeeze(possible, axis), total, -jnp.inf)


def _check(model: Any, series: Any) -> None:
    if not is_finite(model):
        raise TypeError(
            f"The forward algorithm is exact for a MarkovModel whose `finite_states` are known, but got "
            f"{type(model).__name__}. Use SMC."
        )
    if not isinstance(series, Series) or series.observations.ndim != 2:
        raise TypeError("One Series is wanted: read the values with Series.from_values, and use jax.vmap for a batch.")
