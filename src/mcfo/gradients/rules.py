"""What a gradient rule is: what may flow, and a scalar whose gradient is the estimator.

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
from mcfo.smc.filter import SMC
from mcfo.smc.pimh import PIMH
from mcfo.smc.trace import StepDraw
from mcfo.types import Key, LogWeights, Scalar

Side = Literal["theta", "phi"]

SERIES = "mcfo.series"
"""The name of the batch's axis, for a path rule that compares series (`jax.lax.psum`)."""

DEVICES = "mcfo.devices"
"""The name of the devices' axis, where several of them share a batch."""


def all_series() -> tuple[str, ...]:
    """The axes of a `jax.lax.psum` over all series of a batch, whichever device has them."""
    return (SERIES, DEVICES) if is_shared() else (SERIES,)


def is_shared() -> bool:
    """Whether several devices share the batch that is being traced."""
    # JAX answers for an axis that does not exist by an error alone.
    try:
        jax.lax.axis_size(DEVICES)
    except NameError:
        return False
    return True


class Flow(NamedTuple):
    """What a rule's gradient may pass through.

    - `latents`: "all", the latents of this step and of the past, with the weights that they carry; "step", those of
      this step alone, the past being given; "none", no latent: they are data.
    - `density`: whether the parameters inside of q's own density count.
    - `weighted`: whether what passes through a latent of this step is multiplied by the particle's weight v_i.
    """

    latents: Literal["all", "step", "none"]
    density: bool = True
    weighted: bool = False


class Step(eqx.Module):
    """What a rule sees of one step: K particles, live as far as its flow says.

    - `log_joint`: log p(z_t, x_t | h_t-1), of what was observed of x_t.
    - `log_imputed`: log p of what was missing and has been drawn, given the rest; zero where nothing was.
    - `log_proposal`: log q(z_t | h_t-1, x).
    - `log_ratio`: log w_t = log_joint - log_proposal.
    - `log_weights`: the normalized weights after the step, log v_t.
    - `increment`: log R_t.
    - `parents`: log v_t-1 of the particles before they were resampled.
    - `ancestors`, `resampled`: how they were.
    - `remaining`: how many steps there are from this one to the last.
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
        """Σ_i [v_i] values_i. Particles of weight zero count for nothing, whatever their values are."""
        return weighted_sum(self.log_weights, values)


def weighted_sum(log_weights: LogWeights, values: Float[Array, " particles"]) -> Scalar:
    """Σ_i [v_i] values_i, where the weights are numbers: an estimate averages, it does not reweight."""
    log_weights = jax.lax.stop_gradient(log_weights)
    # The inner `where` keeps what is not finite out of the gradient, the outer one out of the sum.
    alive = log_weights > -jnp.inf
    return jnp.sum(jnp.where(alive, jnp.exp(log_weights) * jnp.where(alive, values, 0.0), 0.0))


class Rule(eqx.Module):
    """A gradient estimator. Derive from [`StepRule`][] or [`PathRule`][]."""

    name: ClassVar[str]
    flow: ClassVar[Flow]
    learns: ClassVar[tuple[Side, ...]]
    samplers: ClassVar[tuple[type, ...]] = (SMC, PIMH)
    """The samplers whose particles it is about."""

    def objection(self, sampler: Any) -> str | None:
        """Why this rule is wrong with this sampler, and what to do; None if it is right."""
        return None


class StepRule(Rule):
    """A sum over steps of a scalar of that step.

    Where no gradient crosses time (a Markov model, a flow that does not reach the past) its gradient is accumulated in
    memory that does not grow with the length of the series.
    """

    draws: ClassVar[int | None] = None
    """How many particles it draws and goes through, which it can where no gradient crosses time; None: all."""

    def thinned(self, draw: StepDraw, *, key: Key) -> StepDraw:
        """The particles that it goes through: all of them, unless it draws a few."""
        return draw

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


class Backward(eqx.Module):
    """How a surrogate is differentiated. The sampler always runs on numbers: it decides what is drawn, the rules decide
    what is differentiated."""


def _count(value: object, name: str) -> None:
    if value is not None and not is_positive(value):
        raise ValueError(f"{name} is a whole number, at least 1, but got {value!r}.")


class Accumulated(Backward):
    """Adds up the gradients of blocks of steps while the filter runs.

    For rules that stay within a step, of Markov models: there no gradient crosses time, and blocks lose nothing.

    - Time: one forward pass of the filter, and forward and backward of the densities. With networks and one step at a
      time XLA computes the densities of filter and rule once.
    - Memory: one block; it does not grow with the length of the series.

    **Arguments:**

    - `steps`: the steps of a block; by default as many as fit into the caches.
    """

    steps: int | None = eqx.field(static=True, default=None, converter=whole_number)

    def __check_init__(self):
        _count(self.steps, "The number of steps of Accumulated")


class Reverse(Backward):
    """Reverse mode across time, after the filter has run. It serves every rule and every model.

    - Time: one forward pass of the filter, forward and backward of what the rule replays; with `checkpoint`, one more
      forward pass of that.
    - Memory: steps x series x particles, times what the densities save; `checkpoint` saves the memories and latents
      alone, `window` bounds the steps and `series` the series.

    **Arguments:**

    - `checkpoint`: compute what the replay computed again on the way back instead of saving it.
    - `window`: how many steps a gradient goes back; None, all of them. Particles, weights and memories continue from
      window to window, so that no value changes; gradients are truncated at the windows' ends.
    - `series`: how many series of a batch are differentiated at once; None, all of them. Small groups stay in the
      caches. Path rules that compare series (`ResamplingScore(baseline="others")`) need all of them.
    """

    checkpoint: bool = eqx.field(static=True, default=False)
    window: int | None = eqx.field(static=True, default=None, converter=whole_number)
    series: int | None = eqx.field(static=True, default=None, converter=whole_number)

    def __check_init__(self):
        _count(self.window, "A window's number of steps")
        _count(self.series, "The number of series of Reverse")


class Lane(eqx.Module):
    """A rule and the sides that it teaches; the others are frozen in it."""

    rule: Rule
    theta: bool = eqx.field(static=True)
    phi: bool = eqx.field(static=True)


def is_local(rule: Rule, model: Model) -> bool:
    """Whether no gradient of this rule crosses time, and no weight either."""
    # Other models remember more than the last latent, and theta moves what they remember.
    return isinstance(rule, StepRule) and isinstance(model, MarkovModel) and rule.flow.latents != "all"


def has_networks(model: Model, proposal: Proposal) -> bool:
    """Whether densities cost more than all else that a filter does: more than a hundred parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves((model, proposal)) if eqx.is_inexact_array(leaf)) > 100


# Not values + others - stop_gradient(others): the difference of two infinities is NaN.
@jax.custom_jvp
def with_gradient_of(values: Any, others: Any) -> Any:
    """The values, with the gradient of others in place of their own: also where the others are not finite."""
    return values


@with_gradient_of.defjvp
def _with_gradient_of_tangent(primals: Any, tangents: Any) -> Any:
    return primals[0], tangents[1]


class _OneStep(StepRule):
    """Σ_t Σ_i [v_i] (log p(z_t, x_t | h) - log q(z_t | h, x)) with z_t live, along one flow or another.

    Differentiated with respect to theta it is the filter score: q reads nothing of theta but numbers.
    """

    learns: ClassVar[tuple[Side, ...]] = ("phi",)

    def term(self, step: Step) -> Scalar:
        return step.average(step.log_ratio)


class Reparameterized(_OneStep):
    """∇_φ Σ_t log R_t = Σ_t Σ_i [v_i] ∇_φ log w_i with the histories given: the paper's estimator for φ.

    Estimand: the derivative of E log R_t, summed over t, the law of the histories held fixed. Unbiased for it; zero in
    mean at the locally optimal proposal; its spread there falls as K^-1/2. Chen et al. (2021), equation 8.
    """

    name: ClassVar[str] = "reparameterized"
    flow: ClassVar[Flow] = Flow("step")


class DReG(_OneStep):
    """Σ_t Σ_i [v_i²] log w_i with q's density frozen: the doubly reparameterized estimator for φ.

    Estimand: that of [`Reparameterized`][]; unbiased for it. The score of q inside log w is reparameterized a second
    time, v_i ∂_φ log q = v_i (1 - v_i) ∂_z log w_i ∂_φ z in mean, which leaves v_i². Where log w_t does not depend on
    z_t, at the locally optimal proposal, it is exactly zero. Tucker et al. (2019), for one step of a filter.
    """

    name: ClassVar[str] = "dreg"
    flow: ClassVar[Flow] = Flow("step", density=False, weighted=True)


class StickingTheLanding(_OneStep):
    """Σ_t Σ_i [v_i] log w_i with q's density frozen.

    Drops the score of q instead of reparameterizing it: zero at the locally optimal proposal as [`DReG`][] is, but for
    K > 1 biased elsewhere. Roeder, Wu and Duvenaud (2017).
    """

    name: ClassVar[str] = "sticking-the-landing"
    flow: ClassVar[Flow] = Flow("step", density=False)


class Pathwise(StepRule):
    """∇ Σ_t log R_t through latents, weights and memories of all steps, ancestors held fixed.

    Without resampling: unbiased for the derivative of the bound (ELBO, IWAE), the law of values imputed for a memory
    held fixed: their score stands in the weight, which is right as K grows. With resampling the derivative of the
    ancestors' law is missing, and the estimate is biased at every K (AESMC, FIVO, VSMC as they are used). Its memory
    grows with the length of the series. Le et al. (2018), Maddison et al. (2017), Naesseth et al. (2018).
    """

    name: ClassVar[str] = "pathwise"
    flow: ClassVar[Flow] = Flow("all")
    learns: ClassVar[tuple[Side, ...]] = ("theta", "phi")

    def term(self, step: Step) -> Scalar:
        return step.increment

    def objection(self, sampler: Any) -> str | None:
        return refuse_accepted(sampler)


def refuse_accepted(sampler: Any) -> str | None:
    """Why a gradient through the past has no place in an accepted sweep."""
    if isinstance(sampler, PIMH):
        return (
            "It differentiates a sweep through its noise, but PIMH chose the sweep by that noise. "
            + spoken("Use an SMC sampler", "Leave out the sweeps")
            + f", or use {spelled('theta', 'fisher')} and {spelled('phi', 'reparameterized')}."
        )
    return None


ONE_STEP = (Reparameterized, DReG, StickingTheLanding)
"""The rules for phi whose surrogate gives theta the filter score in the same pass."""
