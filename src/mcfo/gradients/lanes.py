"""A rule and the sides that it teaches, and what one step of a batch adds to the surrogate of several."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mcfo.gradients.flow import Guard, Step, frozen, go_through
from mcfo.gradients.moves import Data
from mcfo.gradients.rules import SERIES, PathRule, Rule, StepRule
from mcfo.models.base import MarkovModel, Model
from mcfo.proposals.base import Proposal
from mcfo.series import Frame
from mcfo.smc.filter import split_first
from mcfo.smc.frames import step_key
from mcfo.smc.trace import Move
from mcfo.types import Key, LogWeights, Scalar

_THINNING = 0x7468696E
"""Keeps the draws of rules that go through a few particles apart from the sampler's."""


class Lane(eqx.Module):
    """A rule and the sides that it teaches; the others are frozen in it."""

    rule: Rule
    theta: bool = eqx.field(static=True)
    phi: bool = eqx.field(static=True)


def is_local(rule: Rule, model: Model) -> bool:
    """Whether no gradient of this rule crosses time, and no weight either."""
    return isinstance(rule, StepRule) and has_local_densities(rule, model)


def has_local_densities(rule: Rule, model: Model) -> bool:
    """Whether no gradient of this rule crosses time, though it may weigh a step by what comes after it."""
    return isinstance(model, MarkovModel) and rule.flow.latents != "all"


def is_deep(model: Model, proposal: Proposal) -> bool:
    """Whether densities cost more than all that a filter does besides, and a gradient for each particle too much."""
    return sum(leaf.size for leaf in jax.tree.leaves((model, proposal)) if eqx.is_inexact_array(leaf)) > 100


def guard_of(model: Model, proposal: Proposal) -> Guard:
    """What keeps the dead out of gradients that stay within the step."""
    return "stand-ins" if is_deep(model, proposal) else "numbers"


def terms(
    lanes: tuple[Lane, ...],
    model: Model,
    proposal: Proposal,
    now: Data,
    moves: Move,
    key: Key,
    *,
    first: bool,
    guard: Guard,
) -> Scalar:
    """The surrogate of one step of all series, where no gradient crosses time."""
    total = jnp.zeros((), moves.carried.dtype)
    steps = gone_through(lanes, model, proposal, now, moves, key, first=first, guard=guard)
    for lane, of_lane in zip(lanes, steps, strict=True):
        total = total + jnp.sum(_terms(lane.rule, of_lane, now.frames))
    return total


def _terms(rule: Rule, steps: Step, frames: Frame) -> Float[Array, " series"]:
    """What a rule that stays within the step says of all series."""

    def of_one(step: Step, frame: Frame) -> Scalar:
        term = rule.term(step)  # pyright: ignore[reportAttributeAccessIssue]
        return frame.unless_padding(term, jnp.zeros_like(term))

    return jax.vmap(of_one)(steps, frames)


def gone_through(
    lanes: tuple[Lane, ...],
    model: Model,
    proposal: Proposal,
    now: Data,
    moves: Move,
    key: Key,
    *,
    first: bool,
    guard: Guard,
) -> list[Step]:
    """One step of all series as each lane goes through it, where no gradient crosses time."""

    def of_one(frame: Frame, move: Move, remaining: Any) -> list[Step]:
        found = []
        for lane in lanes:
            p, q, own = sides(lane, model, proposal, frame)
            some = thinned(lane, move, frame, key)
            # Made again, the weights would be computed for each parameter whose gradient has them in it.
            weighed = guard == "numbers" and some is move and move.log_weights is not None
            step, _ = go_through(
                lane.rule.flow, p, q, None, own, some, remaining, first=first, guard=guard, weighed=weighed
            )
            found.append(step)
        return found

    return jax.vmap(of_one)(now.frames, moves, now.remaining)


def hindsight(
    lanes: tuple[Lane, ...],
    frames: Frame,
    first: list[Step],
    rest: list[Step],
    last_log_weights: Float[Array, "series particles"],
) -> Scalar:
    """The surrogate of all steps of all series, from what was gone through; time is in front."""
    total = jnp.zeros((), last_log_weights.dtype)
    first_frames, rest_frames = split_first(frames)
    for lane, one, others in zip(lanes, first, rest, strict=True):
        if isinstance(lane.rule, PathRule):
            path = jax.vmap(
                lambda *arguments, rule=lane.rule: _along(rule, *arguments),
                in_axes=(0, 0, 1, 1, 0),
                axis_name=SERIES,
            )
            found = path(first_frames, one, rest_frames, others, last_log_weights)
        else:
            later = jax.vmap(lambda steps, frames, rule=lane.rule: _terms(rule, steps, frames))(others, rest_frames)
            found = jnp.concatenate([_terms(lane.rule, one, first_frames)[None], later])
        total = total + jnp.sum(found)
    return total


def _along(
    rule: PathRule, first_frame: Frame, first: Step, frames: Frame, rest: Step, last_log_weights: LogWeights
) -> Scalar:
    """A path rule's surrogate of one series."""

    def body(carry: Any, now: Any) -> tuple[Any, Scalar]:
        carried, parents = carry
        frame, step = now
        step = eqx.tree_at(lambda s: s.parents, step, parents)
        later, term = rule.extend(carried, step)
        after = frame.unless_padding((later, step.log_weights), carry)
        return after, frame.unless_padding(term, jnp.zeros_like(term))

    carried, term = rule.extend(rule.start(first.log_weights), first)
    (carried, _), terms = jax.lax.scan(body, (carried, first.log_weights), (frames, rest))
    return term + jnp.sum(terms) + rule.finish(carried, last_log_weights)


def thinned(lane: Lane, move: Move, frame: Frame, key: Key) -> Move:
    """The particles that a rule which stays within the step goes through."""
    if not isinstance(lane.rule, StepRule):
        return move
    return lane.rule.thinned(move, key=jax.random.fold_in(step_key(key, frame), _THINNING))


def sides(lane: Lane, model: Model, proposal: Proposal, frame: Frame) -> tuple[Model, Proposal, Frame]:
    """Model, proposal and frame as one lane may differentiate them: it never leaks into the side of another."""
    return (
        model if lane.theta else frozen(model),
        proposal if lane.phi else frozen(proposal),
        frame if lane.phi else frozen(frame),
    )
