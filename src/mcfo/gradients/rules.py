"""Gradient rules: a flow, which says what a gradient passes through, and a scalar whose gradient is the estimator.

All surrogates are maximized. A rule for theta is differentiated with respect to the model alone, a rule for phi with
respect to the proposal alone: the other side is frozen.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mcfo.errors import spelled, spoken
from mcfo.models.base import MarkovModel, Model
from mcfo.proposals.base import Proposal
from mcfo.smc.compatibility import is_positive, whole_number
from mcfo.smc.pimh import PIMH
from mcfo.smc.trace import StepDraw
from mcfo.types import Key, LogWeights, Scalar

Side = Literal["theta", "phi"]

SERIES = "mcfo.series"
"""The name of the batch's axis, for a path rule that compares series (`jax.lax.psum`)."""

DEVICES = "mcfo.devices"
"""The name of the devices' axis, where several of them share a batch."""


def all_series() -> tuple[str, ...]:
    """Return the axes of a `jax.lax.psum` over all series of a batch, on whichever device they are."""
    return (SERIES, DEVICES) if _is_shared() else (SERIES,)


def _is_shared() -> bool:
    """Return whether several devices share the batch that is being traced."""
    # JAX reports an axis that does not exist only by an error.
    try:
        jax.lax.axis_size(DEVICES)
    except NameError:
        return False
    return True


class Flow(NamedTuple):
    """The paths along which a rule's gradient may pass.

    - `latents`: "all", through the latents of this step and of the past, with the weights that they carry; "step",
      through those of this step alone, with the past given; "none", through no latent, as if they were data.
    - `density`: whether the gradient includes the parameters inside q's own density.
    - `weighted`: whether the gradient through a latent of this step is multiplied by the particle's weight v_i.
    """

    latents: Literal["all", "step", "none"]
    density: bool = True
    weighted: bool = False


class Step(eqx.Module):
    """The quantities of one step that a rule combines, for K particles. They are differentiable along the rule's flow.

    - `log_joint`: log p(z_t, x_t | h_t-1), for the observed part of x_t.
    - `log_imputed`: log p of the missing values that were drawn, given the observed ones; zero where none was missing.
    - `log_proposal`: log q(z_t | h_t-1, x).
    - `log_ratio`: log w_t = log_joint - log_proposal.
    - `log_weights`: the normalized weights after the step, log v_t.
    - `increment`: log R_t.
    - `parents`: log v_t-1 of the particles before they were resampled.
    - `ancestors`, `resampled`: the ancestor of each particle, and whether resampling preceded the step.
    - `remaining`: the number of steps from this one to the last.
    """

    log_joint: LogWeights
    log_imputed: LogWeights
    log_proposal: LogWeights
    log_weights: LogWeights
    increment: Scalar
    parents: LogWeights
    ancestors: Int[Array, " particles"]
    resampled: Bool[Array, ""]
    remaining: Int[Array, ""]

    @property
    def log_ratio(self) -> LogWeights:
        return self.log_joint - self.log_proposal

    def average(self, values: Float[Array, " particles"]) -> Scalar:
        """Return Σ_i [v_i] values_i. Zero-weight particles contribute nothing, whatever their values."""
        return weighted_sum(self.log_weights, values)


def weighted_sum(log_weights: LogWeights, values: Float[Array, " particles"]) -> Scalar:
    """Return Σ_i [v_i] values_i. The weights are constants: a rule averages, it does not reweight."""
    log_weights = jax.lax.stop_gradient(log_weights)
    # The inner `where` keeps values that are not finite out of the gradient, the outer one out of the sum.
    alive = log_weights > -jnp.inf
    return jnp.sum(jnp.where(alive, jnp.exp(log_weights) * jnp.where(alive, values, 0.0), 0.0))


class Rule(eqx.Module):
    """A gradient estimator. Derive from [`StepRule`][] or [`PathRule`][]."""

    name: ClassVar[str]
    flow: ClassVar[Flow]
    learns: ClassVar[tuple[Side, ...]]

    def objection(self, sampler: Any) -> str | None:
        """Return why this rule is wrong with this sampler, and the remedy; None if the rule is right."""
        return None


class StepRule(Rule):
    """A rule whose surrogate is a sum over steps, of one scalar for each step.

    Where no gradient crosses time (a Markov model, and a flow that does not reach the past), the gradient is
    accumulated in memory that does not grow with the length of the series.
    """

    draws: ClassVar[int | None] = None
    """The number of particles that the rule draws; None for all. A number needs gradients that stay within a step."""

    def thinned(self, draw: StepDraw, *, key: Key) -> StepDraw:
        """Return the particles that the rule differentiates: all of them, unless it draws a few."""
        return draw

    @abc.abstractmethod
    def term(self, step: Step) -> Scalar:
        """Return the term of one step in the surrogate."""


class PathRule(Rule):
    """A rule whose surrogate is a sum along the genealogy. Descendants inherit the state that the rule carries."""

    @abc.abstractmethod
    def start(self, log_weights: LogWeights) -> Any:
        """Return the state that is carried before the first step, for particles with these log-weights."""

    @abc.abstractmethod
    def extend(self, carried: Any, step: Step) -> tuple[Any, Scalar]:
        """Return the state that is carried after a step, and the term of the step in the surrogate."""

    @abc.abstractmethod
    def finish(self, carried: Any, log_weights: LogWeights) -> Scalar:
        """Return the rest of the surrogate after the last step; `log_weights` are those after the last step."""


class Backward(eqx.Module):
    """A way to differentiate a surrogate.

    The sampler always runs with constant parameters: it decides what is drawn, and the rules decide what is
    differentiated.
    """


def _count(value: object, name: str) -> None:
    if value is not None and not is_positive(value):
        raise ValueError(f"{name} is a whole number, at least 1, but got {value!r}.")


class Accumulated(Backward):
    """Accumulation: the gradients of blocks of steps are added up while the filter runs.

    It is for rules whose gradients stay within a step, with Markov models. No gradient crosses time there, so blocks
    lose nothing.

    - Time: one forward pass of the filter, and a forward and a backward pass of the densities. With networks and one
      step at a time, XLA computes the densities of the filter and of the rule once.
    - Memory: one block; it does not grow with the length of the series.

    **Arguments:**

    - `steps`: the number of steps of a block; by default as many as fit into the caches.
    """

    steps: int | None = eqx.field(static=True, default=None, converter=whole_number)

    def __check_init__(self):
        _count(self.steps, "The number of steps of Accumulated")


class Reverse(Backward):
    """Reverse mode across time, after the filter has run. It serves every rule and every model.

    - Time: one forward pass of the filter, and a forward and a backward pass of the steps that the rule recomputes;
      with `checkpoint`, a second forward pass of these.
    - Memory: steps x series x particles, times the numbers that the densities save; `checkpoint` saves the memories
      and latents alone, `window` bounds the steps and `series` the series.

    **Arguments:**

    - `checkpoint`: recompute intermediate results in the backward pass instead of saving them.
    - `window`: the number of steps that a gradient goes back; None for all of them. Particles, weights and memories
      continue from window to window, so that no value changes; gradients are truncated at the windows' ends.
    - `series`: the number of series that are differentiated at once; None for the whole batch. Small groups stay in the
      caches. Path rules that compare series (`ResamplingScore(baseline="others")`) need all of them.
    """

    checkpoint: bool = eqx.field(static=True, default=False)
    window: int | None = eqx.field(static=True, default=None, converter=whole_number)
    series: int | None = eqx.field(static=True, default=None, converter=whole_number)

    def __check_init__(self):
        _count(self.window, "A window's number of steps")
        _count(self.series, "The number of series of Reverse")


class Lane(eqx.Module):
    """A rule and the sides (theta, phi) that learn by it; the parameters of the other side are constants."""

    rule: Rule
    theta: bool = eqx.field(static=True)
    phi: bool = eqx.field(static=True)


def is_local(rule: Rule, model: Model) -> bool:
    """Return whether this rule's gradients and weights stay within a step."""
    # Other models remember more than the last latent, and their memory depends on theta.
    return isinstance(rule, StepRule) and isinstance(model, MarkovModel) and rule.flow.latents != "all"


def has_networks(model: Model, proposal: Proposal) -> bool:
    """Return whether densities dominate the cost of a filter: if there are more than a hundred parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves((model, proposal)) if eqx.is_inexact_array(leaf)) > 100


# Not values + others - stop_gradient(others): the difference of two infinities is NaN.
@jax.custom_jvp
def with_gradient_of(values: Any, others: Any) -> Any:
    """Return the values with the gradient of the others. The others need not be finite."""
    return values


@with_gradient_of.defjvp
def _with_gradient_of_tangent(primals: Any, tangents: Any) -> Any:
    return primals[0], tangents[1]


class _OneStep(StepRule):
    """Σ_t Σ_i [v_i] (log p(z_t, x_t | h) - log q(z_t | h, x)), differentiated through z_t; subclasses set the flow.

    Its derivative with respect to theta is the filter score, because all that q reads of theta is constant.
    """

    learns: ClassVar[tuple[Side, ...]] = ("phi",)

    def term(self, step: Step) -> Scalar:
        return step.average(step.log_ratio)


class Reparameterized(_OneStep):
    """∇_φ Σ_t log R_t = Σ_t Σ_i [v_i] ∇_φ log w_i with the histories given: the paper's estimator for φ.

    Estimand: the derivative of E log R_t, summed over t, with the distribution of the histories held fixed. The rule is
    unbiased for it. At the locally optimal proposal its mean is zero and its standard deviation falls as K^-1/2.
    Chen et al. (2021), equation 8.
    """

    name: ClassVar[str] = "reparameterized"
    flow: ClassVar[Flow] = Flow("step")


class DReG(_OneStep):
    """Σ_t Σ_i [v_i²] log w_i with q's density frozen: the doubly reparameterized estimator for φ.

    Estimand: that of [`Reparameterized`][]. The rule is unbiased for it. The score of q inside log w is reparameterized
    a second time, v_i ∂_φ log q = v_i (1 - v_i) ∂_z log w_i ∂_φ z in mean, which leaves v_i². At the locally optimal
    proposal log w_t does not depend on z_t, and the estimate is exactly zero. Tucker et al. (2019), for one step of a
    filter.
    """

    name: ClassVar[str] = "dreg"
    flow: ClassVar[Flow] = Flow("step", density=False, weighted=True)


class StickingTheLanding(_OneStep):
    """Σ_t Σ_i [v_i] log w_i with q's density frozen.

    The rule drops the score of q instead of reparameterizing it. Like [`DReG`][] it is zero at the locally optimal
    proposal, but for K > 1 it is biased elsewhere. Roeder, Wu and Duvenaud (2017).
    """

    name: ClassVar[str] = "sticking-the-landing"
    flow: ClassVar[Flow] = Flow("step", density=False)


class Pathwise(StepRule):
    """∇ Σ_t log R_t through latents, weights and memories of all steps, with the ancestors held fixed.

    Without resampling it is unbiased for the derivative of the bound (ELBO, IWAE), with the distribution of imputed
    values held fixed: their score is part of the weight, which is correct as K grows. With resampling the derivative of
    the ancestors' distribution is missing, and the estimate is biased at every K (AESMC, FIVO, VSMC as they are used).
    Memory grows with the length of the series. Le et al. (2018), Maddison et al. (2017), Naesseth et al. (2018).
    """

    name: ClassVar[str] = "pathwise"
    flow: ClassVar[Flow] = Flow("all")
    learns: ClassVar[tuple[Side, ...]] = ("theta", "phi")

    def term(self, step: Step) -> Scalar:
        return step.increment

    def objection(self, sampler: Any) -> str | None:
        return refuse_accepted(sampler)


def refuse_accepted(sampler: Any) -> str | None:
    """Return why a gradient must not pass through the past of an accepted sweep; None for other samplers."""
    if isinstance(sampler, PIMH):
        return (
            "It differentiates a sweep through its noise, but PIMH chose the sweep by that noise. "
            + spoken("Use an SMC sampler", "Leave out the sweeps")
            + f", or use {spelled('theta', 'fisher')} and {spelled('phi', 'reparameterized')}."
        )
    return None


ONE_STEP = (Reparameterized, DReG, StickingTheLanding)
"""The rules for phi whose surrogate has the filter score as its derivative with respect to theta."""
