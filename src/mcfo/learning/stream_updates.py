"""The gradient of one step of a stream, and the update by it."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Int

from mcfo.gradients.draws import Taken
from mcfo.gradients.replay import Replay
from mcfo.gradients.rules import Lane, Rule
from mcfo.gradients.score import Genealogical
from mcfo.learning.parameters import Modules, split
from mcfo.learning.recent_steps import RecentSteps
from mcfo.learning.stream_settings import Learning
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.smc.filter import SMC
from mcfo.smc.step_scan import frame_at, frames
from mcfo.smc.trace import StepDraw
from mcfo.types import Key, LogWeights, Scalar


class StreamLanes(NamedTuple):
    """The rules of a stream as lanes: of the present step, and of an earlier one, with its lag."""

    present: tuple[Lane, ...]
    lagged: tuple[tuple[Lane, int], ...]

    @classmethod
    def of(cls, learning: Learning, sampler: SMC, modules: Modules) -> StreamLanes:
        """Return the lanes of what is learned."""
        objective = learning.objective(sampler)
        rules: list[tuple[Rule, bool]] = [] if learning.exact else [(objective.theta.rule, True)]
        if objective.phi is not None and not modules.follows and _has_numbers(modules.proposal):
            rules.append((objective.phi.rule, False))
        present, lagged = [], []
        for rule, theta in rules:
            if isinstance(rule, Genealogical):
                assert rule.lag is not None
                lagged.append((Lane(rule.of_step(), theta, not theta), rule.lag))
            else:
                present.append(Lane(rule, theta, not theta))
        return cls(tuple(present), tuple(lagged))

    @property
    def longest(self) -> int:
        """The longest lag."""
        return max((lag for _, lag in self.lagged), default=0)


def _has_numbers(proposal: Proposal) -> bool:
    return any(map(eqx.is_inexact_array, jax.tree.leaves(proposal)))


def row_frame(proposal: Proposal, row: Series) -> Frame:
    """Return the only step of a series of one step."""
    return frame_at(frames(proposal, row), 0)


def step_gradient(
    lanes: tuple[Lane, ...],
    modules: Modules,
    fixed: tuple[str, ...],
    row: Series,
    draw: StepDraw,
    *,
    key: Key,
    first: bool,
) -> Any:
    """Return the gradient of minus the rules' terms of one step."""
    learned, rest = split(modules, fixed)
    if not lanes:
        return jax.tree.map(jnp.zeros_like, learned)

    def surrogate(learned: Any) -> Scalar:
        modules: Modules = eqx.combine(learned, rest)
        taken = Taken(row_frame(modules.proposal, row), draw, jnp.ones((), jnp.int32))
        replays = [Replay(lane, modules.model, modules.proposal, key) for lane in lanes]
        if first:
            return -sum((replay.first(taken)[0] for replay in replays), start=jnp.zeros(()))
        several = jax.tree.map(lambda array: array[None], taken)
        return -sum((replay.rest(several, None)[0] for replay in replays), start=jnp.zeros(()))

    return jax.grad(surrogate)(learned)


def lagged_gradient(
    lane: Lane,
    lag: int,
    modules: Modules,
    fixed: tuple[str, ...],
    recent: RecentSteps,
    log_weights: LogWeights,
    time: Int[Array, ""],
    *,
    key: Key,
) -> Any:
    """Return the gradient of minus the term of step `time` - `lag`, given the observations up to `time`.

    Its sum over time is that of [`Fisher`][] with this lag, but for the last steps; each term is taken with the
    parameters of its update. At the truth its mean is zero at any lag. Poyiadjis, Doucet and Singh (2011).
    """
    learned, _ = split(modules, fixed)
    row, past = recent.ancestral(time - lag, log_weights)

    def nothing() -> Any:
        return jax.tree.map(jnp.zeros_like, learned)

    def initial() -> Any:
        start = eqx.tree_at(lambda d: d.memory, past, None)
        return step_gradient((lane,), modules, fixed, row, start, key=key, first=True)

    def later() -> Any:
        return step_gradient((lane,), modules, fixed, row, past, key=key, first=False)

    return jax.lax.switch(jnp.clip(time - lag + 1, 0, 2), [nothing, initial, later])


def updated(
    modules: Modules, optimizer: Any, gradient: Any, learning: Learning, wanted: Bool[Array, ""]
) -> tuple[Modules, Any, Bool[Array, ""]]:
    """Return the modules and the optimizer after an update that is `wanted` and finite, and whether it was skipped."""
    learned, rest = split(modules, learning.fixed)
    changes, later = learning.transformation().update(gradient, optimizer, learned)  # pyright: ignore[reportArgumentType]
    new = optax.apply_updates(learned, changes)  # pyright: ignore[reportArgumentType]
    numbers = [leaf for leaf in jax.tree.leaves((gradient, new, later)) if eqx.is_inexact_array(leaf)]
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in numbers]))
    accepted = jax.tree.map(lambda new, old: jnp.where(wanted & finite, new, old), (new, later), (learned, optimizer))
    return eqx.combine(accepted[0], rest).current(), accepted[1], wanted & ~finite
