"""What a gradient rule is: what may flow, and a scalar whose gradient is the estimator.

All surrogates are maximized. A rule for theta is differentiated with respect to the model alone, a rule for phi with
respect to the proposal alone: the other side is frozen.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
from jaxtyping import Array, Bool

from mcfo.gradients.flow import Flow, Step
from mcfo.smc.trace import Move
from mcfo.types import Key, LogWeights, Scalar

Side = Literal["theta", "phi"]

SERIES = "mcfo.series"
"""The name of the batch's axis, for a path rule that compares series (`jax.lax.psum`)."""

DEVICES = "mcfo.devices"
"""The name of the devices' axis, where several of them share a batch."""


def all_series() -> tuple[str, ...]:
    """The axes of a `jax.lax.psum` over all series of a batch, whichever device has them."""
    return (SERIES, DEVICES) if _is_shared() else (SERIES,)


def on_any_device(happened: Bool[Array, ""]) -> Bool[Array, ""]:
    """Whether it happened on any of the devices that share a batch: what all of them do, they must do together."""
    return jax.lax.pmax(happened.astype(int), DEVICES) > 0 if _is_shared() else happened


def _is_shared() -> bool:
    """Whether several devices share the batch that is being traced."""
    try:
        jax.lax.axis_size(DEVICES)
    except NameError:
        return False
    return True


class Rule(eqx.Module):
    """A gradient estimator. Derive from [`StepRule`][] or [`PathRule`][]."""

    name: ClassVar[str]
    flow: ClassVar[Flow]
    learns: ClassVar[tuple[Side, ...]]

    def objection(self, sampler: Any) -> str | None:
        """Why this rule is wrong with this sampler, and what to do; None if it is right."""
        return None


class StepRule(Rule):
    """A sum over steps of a scalar of that step.

    Where no gradient crosses time (a Markov model, a flow that does not reach the past) its gradient is accumulated in
    memory that does not grow with the length of the series.
    """

    @property
    def thins_to(self) -> int | None:
        """How many particles it draws and goes through, which it can where no gradient crosses time; None: all."""
        return None

    def thinned(self, move: Move, *, key: Key) -> Move:
        """The particles that it goes through: all of them, unless it draws a few."""
        return move

    @abc.abstractmethod
    def term(self, step: Step) -> Scalar:
        """The step's share of the surrogate."""


class PathRule(Rule):
    """A sum along the genealogy: what particles carry is inherited with their memory."""

    @abc.abstractmethod
    def start(self, log_weights: LogWeights) -> Any:
        """What is carried before the first step, for particles with these log-weights."""

    @abc.abstractmethod
    def extend(self, carried: Any, step: Step) -> tuple[Any, Scalar]:
        """What is carried after a step, and the step's share of the surrogate."""

    @abc.abstractmethod
    def finish(self, carried: Any, log_weights: LogWeights) -> Scalar:
        """The rest of the surrogate, after the last step; `log_weights` are the last ones."""
