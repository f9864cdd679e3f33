"""A rule and the sides that it teaches, and what one step of a batch adds to the surrogate of several."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from mcfo.gradients.flow import frozen, go_through
from mcfo.gradients.moves import Data
from mcfo.gradients.rules import Rule, StepRule
from mcfo.models.base import MarkovModel, Model
from mcfo.proposals.base import Proposal
from mcfo.sequences import Frame
from mcfo.smc.frames import step_key
from mcfo.smc.trace import Move
from mcfo.types import Key, Scalar

_THINNING = 0x7468696E
"""Keeps the draws of rules that go through a few particles apart from the sampler's."""


class Lane(eqx.Module):
    """A rule and the sides that it teaches; the others are frozen in it."""

    rule: Rule
    theta: bool = eqx.field(static=True)
    phi: bool = eqx.field(static=True)


def is_local(rule: Rule, model: Model) -> bool:
    """Whether no gradient of this rule crosses time."""
    return isinstance(model, MarkovModel) and isinstance(rule, StepRule) and rule.flow.latents != "all"


def is_deep(model: Model, proposal: Proposal) -> bool:
    """Whether densities cost more than all that a filter does besides."""
    return sum(leaf.size for leaf in jax.tree.leaves((model, proposal)) if eqx.is_inexact_array(leaf)) > 1000


def terms(
    lanes: tuple[Lane, ...],
    model: Model,
    proposal: Proposal,
    now: Data,
    moves: Move,
    key: Key,
    *,
    first: bool,
    stand_in: bool = True,
) -> Scalar:
    """The surrogate of one step of all sequences, where no gradient crosses time."""

    def of_one(frame: Frame, move: Move, remaining: Any) -> Scalar:
        total = jnp.zeros((), move.carried.dtype)
        for lane in lanes:
            p, q, own = sides(lane, model, proposal, frame)
            some = thinned(lane, move, frame, key)
            step, _ = go_through(lane.rule.flow, p, q, None, own, some, remaining, first=first, stand_in=stand_in)
            term = lane.rule.term(step)  # pyright: ignore[reportAttributeAccessIssue]
            total = total + frame.unless_padding(term, jnp.zeros_like(term))
        return total

    return jnp.sum(jax.vmap(of_one)(now.frames, moves, now.remaining))


def thinned(lane: Lane, move: Move, frame: Frame, key: Key) -> Move:
    """The particles that a rule which stays within the step goes through."""
    return lane.rule.thinned(  # pyright: ignore[reportAttributeAccessIssue]
        move, key=jax.random.fold_in(step_key(key, frame), _THINNING)
    )


def sides(lane: Lane, model: Model, proposal: Proposal, frame: Frame) -> tuple[Model, Proposal, Frame]:
    """Model, proposal and frame as one lane may differentiate them: it never leaks into the side of another."""
    return (
        model if lane.theta else frozen(model),
        proposal if lane.phi else frozen(proposal),
        frame if lane.phi else frozen(frame),
    )
