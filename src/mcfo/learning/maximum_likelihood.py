"""Maximum likelihood for models whose likelihood is exact: L-BFGS from several starts at once, in float64.

The search goes over the learned arrays of a model in standard units, divided by the number of observed values, so that
neither the unit of the data nor their number changes its path.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from mcfo import exact
from mcfo.data.batching import Buckets, unstacked
from mcfo.errors import InputError
from mcfo.learning.parameters import dotted
from mcfo.learning.priors import Priors
from mcfo.models.base import Model
from mcfo.precision import in_float64
from mcfo.types import HostArray

MEMORY = 20
"""Pairs of steps and gradients in the approximation of the Hessian: more than most models have parameters."""
CHUNK = 25
"""Evaluations between two looks at the host."""
_LONGEST = 3.0
"""The longest step of one parameter; a scale changes by at most exp(3)."""
_SUFFICIENT = 1e-4
"""The share of the expected descent that a step must achieve. Armijo (1966)."""
_ENOUGH = 1e-8
"""Nats that a step is expected to gain below which the search ends; rounding is of about that size."""
_ALIKE = 1e-3
"""Nats within which a search is taken to end where another one has ended."""
_OPTIMISM = 100.0
"""Times the expected gain that a search may still make; one that would then still be behind is given up."""
_PATIENCE = 3
"""Accepted steps in a row that gain less than that after which it ends too."""
_SHORTEST = 1e-10
_CURVED = 1e-2
"""The least cosine of a step and the change of the gradient along it."""
FLAT = 1e-3
"""Nats by which the likelihood may change along a parameter that is at its bound."""


class Search(eqx.Module):
    """The searches from all starts, one lane each, in the coordinates of the learned arrays.

    `value` is minus the log-likelihood for each observed value at `point`. `trial` is the point that is evaluated next:
    each round costs one evaluation of value and gradient, whether it accepts a step or shortens it.
    """

    point: Float[HostArray, "*lanes size"]
    value: Float[HostArray, "*lanes"]
    gradient: Float[HostArray, "*lanes size"]
    direction: Float[HostArray, "*lanes size"]
    length: Float[HostArray, "*lanes"]
    trial: Float[HostArray, "*lanes size"]
    memory: Any
    accepted: Int[HostArray, "*lanes"]
    idle: Int[HostArray, "*lanes"]
    done: Bool[HostArray, "*lanes"]


class Progress(NamedTuple):
    """The searches after some rounds: log-likelihoods and norms of gradients after each, (rounds, lanes)."""

    search: Search
    rounds: int
    log_likelihoods: np.ndarray
    gradient_norms: np.ndarray


class Problem(NamedTuple):
    """What is maximized.

    - `learned`, `rest`: the learned arrays of a model at the first start, and all else of it.
    - `units`: the unit of each learned number in the coordinates of a search.
    - `values`: the number of observed values.
    - `priors`: priors whose log-density is added to the log-likelihood; None for none.
    """

    learned: Model
    rest: Model
    data: Buckets
    units: Float[np.ndarray, " size"]
    values: Any
    priors: Priors | None = None

    @classmethod
    def build(
        cls, learned: Model, rest: Model, data: Buckets, units: np.ndarray, priors: Priors | None = None
    ) -> Problem:
        """Count the values, and refuse data without any."""
        total = sum(int(np.sum(~np.isnan(one.values()))) for batch in data for one in unstacked(batch))
        if not total:
            raise InputError("There is no observed value to learn from. Give at least one.")
        return cls(learned, rest, data, units, float(total), priors)


@in_float64
def initial_search(problem: Problem, starts: np.ndarray) -> Search:
    """Return the searches before the first evaluation; `starts` are displacements from the learned arrays."""
    point = np.asarray(ravel_pytree(problem.learned)[0]) / problem.units + starts
    lanes = len(point)
    infinite = np.full(lanes, np.inf)
    return Search(
        point=point,
        value=infinite,
        gradient=np.zeros_like(point),
        direction=np.zeros_like(point),
        length=np.ones(lanes),
        trial=point,
        memory=jax.vmap(_memory().init)(jnp.asarray(point)),
        accepted=np.zeros(lanes, np.int32),
        idle=np.zeros(lanes, np.int32),
        done=np.zeros(lanes, bool),
    )


@in_float64
def advance(problem: Problem, search: Search, rounds: int) -> Progress:
    """Run up to `rounds` rounds of all searches that are not done."""
    count = np.asarray(min(rounds, CHUNK), np.int32)
    problem = problem._replace(values=np.asarray(problem.values))
    search, done, log_likelihoods, norms = _rounds(problem, search, count)
    done = int(done)
    return Progress(search, done, np.asarray(log_likelihoods)[:done], np.asarray(norms)[:done])


def maximize(problem: Problem, starts: np.ndarray, *, most: int) -> Iterator[Progress]:
    """Yield the searches some rounds at a time, until all have ended or `most` rounds were made."""
    search, total = initial_search(problem, starts), 0
    while total < most and not np.all(search.done):
        progress = advance(problem, search, most - total)
        search, total = progress.search, total + progress.rounds
        yield progress


@in_float64
def at_point(problem: Problem, point: np.ndarray) -> Model:
    """Return the model at a point of a search."""
    learned = ravel_pytree(problem.learned)[1](jnp.asarray(point * problem.units))
    return eqx.combine(learned, problem.rest)


def perturbations(learned: Model, count: int, seed: int) -> np.ndarray:
    """Return displacements of starts, (count, size): none for the first; the others move logarithms of scales by
    about one and a half and all else a little."""
    leaves = jax.tree_util.tree_leaves_with_path(learned)
    spreads = [np.full(np.size(leaf), 1.5 if "log_" in dotted(path) else 0.2) for path, leaf in leaves]
    spread = np.concatenate(spreads)
    drawn = np.random.default_rng(seed).normal(size=(count, len(spread))) * spread
    drawn[0] = 0.0
    return drawn


def parameter_names(learned: Model) -> list[str]:
    """Return a name for each coordinate of a search: "model.emission_noise.log_diagonal[0]"."""
    return [
        f"model.{dotted(path)}" + "".join(f"[{one}]" for one in index)
        for path, leaf in jax.tree_util.tree_leaves_with_path(learned)
        for index in np.ndindex(np.shape(leaf))
    ]


def at_bounds(problem: Problem, point: np.ndarray, best: float, *, lanes: int) -> list[str]:
    """Return the names of the parameters that the likelihood wants at minus infinity, as that of a zero variance."""
    names, found = parameter_names(problem.learned), []
    candidates = [index for index, name in enumerate(names) if "log_" in name]
    origin = initial_search(problem, np.zeros((1, len(point)))).point[0]
    for first in range(0, len(candidates), lanes):
        indices = candidates[first : first + lanes]
        moved = np.repeat(point[None], lanes, axis=0)
        moved[np.arange(len(indices)), indices] -= 5.0
        log_likelihoods = advance(problem, initial_search(problem, moved - origin), 1).log_likelihoods[0]
        near = np.abs(log_likelihoods[: len(indices)] - best) < FLAT
        found += [names[index] for index, flat in zip(indices, near, strict=True) if flat]
    return found


def _memory() -> optax.GradientTransformation:
    return optax.scale_by_lbfgs(memory_size=MEMORY)


@eqx.filter_jit
def _rounds(problem: Problem, search: Search, count: Any) -> Any:
    def body(carry: Any) -> Any:
        search, index, log_likelihoods, norms = carry
        search = one_round(problem, search)
        norm = jnp.max(jnp.abs(search.gradient), axis=-1) * problem.values
        at = log_likelihoods.at[index].set(-search.value * problem.values), norms.at[index].set(norm)
        return search, index + 1, *at

    def goes_on(carry: Any) -> Any:
        return (carry[1] < count) & ~jnp.all(carry[0].done)

    empty = jnp.zeros((CHUNK, len(search.value)))
    return jax.lax.while_loop(goes_on, body, (search, jnp.zeros((), jnp.int32), empty, empty))


def one_round(problem: Problem, search: Search) -> Search:
    """Evaluate every lane at its trial point, and accept the step or shorten it."""
    values = problem.values
    trial_values, gradients = jax.vmap(jax.value_and_grad(lambda point: loss_at(problem, point)))(search.trial)
    return _give_up(jax.vmap(_step, in_axes=(0, 0, 0, None))(search, trial_values, gradients, values), values)


def loss_at(problem: Problem, point: Float[Array, " size"]) -> Any:
    """Return minus the log-likelihood, with the log-density of the priors if there are any, for each observed value."""
    model = eqx.combine(ravel_pytree(problem.learned)[1](point * problem.units), problem.rest)
    total = sum(jnp.sum(jax.vmap(lambda one: exact.log_evidence(model, one))(batch)) for batch in problem.data)
    if problem.priors is not None:
        total = total + problem.priors.log_density(model)
    return -total / problem.values


def _step(search: Search, value: Array, gradient: Array, values: Array) -> Search:
    """Accept the trial and choose a new direction, or shorten the step. One lane."""
    finite = jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient))
    first = jnp.isinf(search.value)
    expected = jnp.vdot(search.direction, search.gradient)
    # Below the rounding of the likelihood, a step that changes nothing is as good as one that descends.
    rounding = 8 * jnp.finfo(value.dtype).eps * jnp.maximum(1.0, jnp.abs(search.value))
    enough = value <= search.value + _SUFFICIENT * search.length * expected + rounding
    accept = finite & (first | enough) & ~search.done
    gain = jnp.where(first, jnp.inf, search.value - value) * values

    direction, memory = _direction(search, gradient)
    slope = jnp.vdot(direction, gradient)
    idle = jnp.where(gain < _ENOUGH, search.idle + 1, 0)
    settled = (-0.5 * slope * values < _ENOUGH) | (idle >= _PATIENCE)
    # The first direction is the gradient, whose length means nothing.
    length = jnp.where(first, jnp.minimum(1.0, 1.0 / jnp.maximum(jnp.max(jnp.abs(gradient)), 1e-12)), 1.0)
    length = jnp.minimum(length, _LONGEST / jnp.maximum(jnp.max(jnp.abs(direction)), 1e-12))

    # The minimum of the parabola through the two values and the slope, kept within a tenth and a half.
    curvature = value - search.value - search.length * expected
    best = -0.5 * expected * search.length / jnp.where(curvature > 0, curvature, jnp.inf)
    shorter = search.length * jnp.where(finite, jnp.clip(best, 0.1, 0.5), 0.1)

    def choose(new: Any, old: Any) -> Any:
        return jax.tree.map(lambda a, b: jnp.where(accept, a, b), new, old)

    point = choose(search.trial, search.point)
    length = choose(length, shorter)
    direction = choose(direction, search.direction)
    hopeless = ~accept & (first | (shorter < _SHORTEST))
    return Search(
        point=point,
        value=choose(value, search.value),
        gradient=choose(gradient, search.gradient),
        direction=direction,
        length=length,
        trial=point + length * direction,
        memory=choose(memory, search.memory),
        accepted=search.accepted + accept,
        idle=choose(idle, search.idle),
        done=search.done | (accept & settled) | hopeless,
    )


def _give_up(search: Search, values: Array) -> Search:
    """End the searches that will not end above one that has ended. All lanes."""
    ended = jnp.min(jnp.where(search.done, search.value, jnp.inf))
    behind = (search.value - ended) * values
    gain = -0.5 * jnp.sum(search.direction * search.gradient, axis=-1) * values
    alike = (jnp.abs(behind) < _ALIKE) & (gain < _ALIKE)
    return eqx.tree_at(lambda s: s.done, search, search.done | alike | (behind > _OPTIMISM * gain))


def _direction(search: Search, gradient: Array) -> tuple[Array, Any]:
    """Return minus the inverse Hessian times the gradient, by the pairs that were seen; and the pairs."""
    step, change = search.trial - search.point, gradient - search.gradient
    lengths = jnp.linalg.norm(step), jnp.linalg.norm(change)
    # A pair without positive curvature would make the approximation indefinite. Powell (1978) damps it.
    lacking = jnp.maximum(_CURVED * lengths[0] * lengths[1] - jnp.vdot(step, change), 0.0)
    damped = change + step * lacking / jnp.where(lengths[0] > 0, lengths[0] ** 2, 1.0)
    scaled: Any
    scaled, memory = _memory().update(gradient, search.memory._replace(updates=gradient - damped), search.trial)
    return -scaled, memory
