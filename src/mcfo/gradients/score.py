"""Rules that differentiate densities at given latents, and the score of the ancestors."""

from __future__ import annotations

import abc
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mcfo.gradients.rules import Flow, PathRule, Side, Step, StepRule, all_series, refuse_accepted, weighted_sum
from mcfo.smc.compatibility import is_positive, whole_number
from mcfo.smc.filter import SMC
from mcfo.smc.resampling import Always, Multinomial, Never, systematic_indices
from mcfo.smc.step import inherit
from mcfo.smc.trace import StepDraw
from mcfo.types import Key, LogWeights, Scalar


class FilterScore(StepRule):
    """Σ_t Σ_i [v_t^i] log p_θ(x_t, [z_t^i] | h^i): the paper's estimator for θ, and NASMC's.

    The rule averages the score of step t over the *filtering* distribution at t. The score of log p(x_1:T) averages
    over the smoothing distribution, so this is not the maximum-likelihood gradient, at any K. Averaged over data from
    θ* it is zero at θ* (up to 1/K), so θ* is a root of it. Chen et al. (2021), equation 9; Gu, Ghahramani and Turner
    (2015).

    With `draws`, that number of particles is drawn from the weights at each step by systematic sampling, and only these
    are differentiated. The expectation of their mean score is the weighted sum over all K. For large networks this
    saves most of the work of a step and adds some variance.
    """

    draws: int | None = eqx.field(static=True, default=None, converter=whole_number)

    name: ClassVar[str] = "filter-score"
    flow: ClassVar[Flow] = Flow("none")
    learns: ClassVar[tuple[Side, ...]] = ("theta",)

    def __check_init__(self):
        if self.draws is not None and not is_positive(self.draws):
            raise ValueError(
                f"The draws of FilterScore must be a whole number, at least 1, but got {self.draws!r}. For all "
                "particles leave it out."
            )

    def objection(self, sampler: Any) -> str | None:
        if self.draws is None or isinstance(sampler, SMC):
            return None
        return (
            "Particles are drawn from the weights of a filter as it runs, but PIMH's draws come from an accepted "
            "sweep. Leave out the draws, or use an SMC sampler."
        )

    def thinned(self, draw: StepDraw, *, key: Key) -> StepDraw:
        if self.draws is None:
            return draw
        assert draw.log_weights is not None  # only filters get here, see `objection`; their draws have weights
        chosen = systematic_indices(draw.log_weights, self.draws, key=key)
        # Every field but `resampled`, which is one number, has one row per particle.
        few = jax.tree.map(lambda array: array[chosen], eqx.tree_at(lambda d: d.resampled, draw, draw.carried))
        return eqx.tree_at(lambda d: d.resampled, few, draw.resampled)

    def term(self, step: Step) -> Scalar:
        return step.average(step.log_joint) if self.draws is None else jnp.mean(step.log_joint)


class InclusiveKL(StepRule):
    """Σ_t Σ_i [v_t^i] log q_φ([z_t^i] | [h^i], x): NASMC's estimator for φ.

    The rule descends KL(p(z_t | h, x_t) || q(z_t | h, x)), averaged over histories h from p(h | x_1:t). Its bias is of
    order 1/K. It needs no reparameterization. Gu, Ghahramani and Turner (2015).
    """

    name: ClassVar[str] = "inclusive-kl"
    flow: ClassVar[Flow] = Flow("none")
    learns: ClassVar[tuple[Side, ...]] = ("phi",)

    def term(self, step: Step) -> Scalar:
        return step.average(step.log_proposal)


class Genealogical(PathRule):
    """A log-density of each step, summed along the genealogy and averaged by the last weights, or those `lag` later."""

    lag: int | None = eqx.field(static=True, default=None, converter=whole_number)

    flow: ClassVar[Flow] = Flow("none")
    _without_lag: ClassVar[str]

    def __check_init__(self):
        if self.lag is not None and not is_positive(self.lag):
            raise ValueError(
                f"The lag of {type(self).__name__} must be a whole number, at least 1, but got {self.lag!r}. For the "
                f"whole genealogy leave it out; for no lag use {self._without_lag}()."
            )

    @abc.abstractmethod
    def log_density(self, step: Step) -> Float[Array, " particles"]:
        """Return the log-density that is summed along the genealogy."""

    def start(self, log_weights: LogWeights) -> Float[Array, "particles lag"]:
        # The log-densities of the last steps, the oldest first; without a lag, their sum.
        return jnp.zeros((len(log_weights), self.lag or 1), log_weights.dtype)

    def extend(
        self, carried: Float[Array, "particles lag"], step: Step
    ) -> tuple[Float[Array, "particles lag"], Scalar]:
        # Descendants inherit the sums together with the histories to which they belong.
        carried, density = inherit(carried, step.ancestors), self.log_density(step)[:, None]
        if self.lag is None:
            return carried + density, jnp.zeros_like(step.increment)
        return jnp.concatenate([carried[:, 1:], density], axis=1), step.average(carried[:, 0])

    def finish(self, carried: Float[Array, "particles lag"], log_weights: LogWeights) -> Scalar:
        return weighted_sum(log_weights, jnp.sum(carried, axis=1))

    def of_step(self) -> StepRule:
        """The share of one step, for draws that stand in the order of their descendants, with the descendants' weights:
        a stream finds them itself, since it has no end from which to look back."""
        return _ShareOfStep(self)


class _ShareOfStep(StepRule):
    """One term of a sum along the genealogy."""

    rule: Genealogical

    name: ClassVar[str] = "share-of-step"
    flow: ClassVar[Flow] = Flow("none")
    learns: ClassVar[tuple[Side, ...]] = ("theta", "phi")

    def term(self, step: Step) -> Scalar:
        return step.average(self.rule.log_density(step))


class Fisher(Genealogical):
    """Σ_i [V^i] Σ_t log p_θ(x_t, [z_t^i] | h_t-1^i) over the genealogy: Fisher's identity.

    It is consistent for the score of log p(x_1:T), with a bias of order 1/K. Lineages coalesce, so its variance grows
    with the length of the series. A `lag` L uses for step t the weights of step t + L instead of the last ones. That
    reduces the variance and adds a bias, which falls as the model forgets; lag 0 is the filter score.
    Poyiadjis, Doucet and Singh (2011).
    """

    name: ClassVar[str] = "fisher"
    learns: ClassVar[tuple[Side, ...]] = ("theta",)
    _without_lag: ClassVar[str] = "FilterScore"

    def log_density(self, step: Step) -> Float[Array, " particles"]:
        # An imputed value is a latent too: later steps remember it.
        return step.log_joint + step.log_imputed


class PathKL(Genealogical):
    """Σ_i [V^i] Σ_t log q_φ([z_t^i] | [h_t-1^i], x) with the weights V of whole paths: the wake phase of RWS for φ.

    The rule descends KL(p(z_1:T | x_1:T) || q). Bornschein and Bengio (2015). A `lag` L uses for step t the weights of
    step t + L. That reduces the variance, and q approaches the distribution of z_t given x_1:t+L.

    On a single series the optimum differs from that of [`InclusiveKL`][], because q does not know later observations;
    averaged over data from the model, the two agree. While the model is still being learned they differ: later
    observations select the particles, so q can learn a latent that x_t does not show, such as a speed. The other rules
    for φ that do not go back through time judge a draw by x_t alone, and cannot tell how good such a draw is.
    """

    name: ClassVar[str] = "path-kl"
    learns: ClassVar[tuple[Side, ...]] = ("phi",)
    _without_lag: ClassVar[str] = "InclusiveKL"

    def log_density(self, step: Step) -> Float[Array, " particles"]:
        return step.log_proposal


class _Reward(eqx.Module):
    """The score of all ancestors so far, the sum of the rewards so far, and their number."""

    score: Scalar
    total: Scalar
    steps: Int[Array, ""]


class ResamplingScore(PathRule):
    """[`Pathwise`][] plus the score of the ancestors, Σ_t [Σ_{s>t} log R_s - b_t] Σ_i log v_t^{A_i}.

    It is unbiased for the derivative of the bound E Σ_t log R_t, for multinomial resampling on a fixed schedule. Its
    variance is high and grows with K. The score of each ancestor is multiplied by the sum of all later increments (the
    reward to go), less a baseline, which adds no bias because it does not depend on the ancestors. The rule is refused
    where missing values are imputed (a model that is not Markov), because it lacks their score. Le et al. (2018),
    Maddison et al. (2017).

    **Arguments:**

    - `baseline`: b_t. "past" is the mean of log R_1..t times the number of remaining steps, which is known before A_t
      is drawn. "others" is the mean increment of the other series of the batch at the same steps; it is best if they
      are replicates of one series (`stack` it with itself). None is zero.
    """

    baseline: Literal["past", "others"] | None = eqx.field(static=True, default="past")

    def __check_init__(self):
        if self.baseline not in ("past", "others", None):
            raise ValueError(f"The baseline is 'past', 'others' or None, but got {self.baseline!r}.")

    name: ClassVar[str] = "resampling-score"
    flow: ClassVar[Flow] = Flow("all")
    learns: ClassVar[tuple[Side, ...]] = ("theta", "phi")

    def objection(self, sampler: Any) -> str | None:
        if not isinstance(sampler, SMC):
            return refuse_accepted(sampler)
        # Without resampling there are no ancestors, so no score is missing from `Pathwise`.
        if type(sampler.criterion) is Never:
            return None
        if type(sampler.criterion) is not Always:
            return (
                f"It is right on a fixed schedule, but {type(sampler.criterion).__name__} decides by the weights, and "
                "the derivative of that would be missing. Use criterion=Always()."
            )
        if not isinstance(sampler.resampling, Multinomial):
            return (
                "It needs the probability of the ancestors as a product over particles, which "
                f"{type(sampler.resampling).__name__} does not have. Use resampling=Multinomial()."
            )
        return None

    def start(self, log_weights: LogWeights) -> _Reward:
        zero = jnp.zeros((), log_weights.dtype)
        return _Reward(zero, zero, jnp.zeros((), jnp.int32))

    def extend(self, carried: _Reward, step: Step) -> tuple[_Reward, Scalar]:
        chosen = jnp.sum(step.parents.at[step.ancestors].get(mode="promise_in_bounds", indices_are_sorted=True))
        score = jnp.where(step.resampled, chosen, 0.0)
        scores = carried.score + score
        reward = jax.lax.stop_gradient(step.increment)
        expected, surplus = jnp.zeros_like(reward), reward
        if self.baseline == "past":
            expected = carried.total / jnp.maximum(carried.steps, 1) * step.remaining
        elif self.baseline == "others":
            surplus = reward - _mean_of_others(reward, step.remaining > 0)
        # Σ_t score_t Σ_{s>=t} reward_s = Σ_s reward_s Σ_{t<=s} score_t needs no second pass over the rewards.
        surrogate = step.increment + surplus * scores - expected * score
        return _Reward(scores, carried.total + reward, carried.steps + 1), surrogate

    def finish(self, carried: _Reward, log_weights: LogWeights) -> Scalar:
        return jnp.zeros_like(carried.score)


def _mean_of_others(reward: Scalar, present: Bool[Array, ""]) -> Scalar:
    """Return the mean over the other series that have this step; zero if there is none."""
    reward = jnp.where(present, reward, 0.0)
    axes = all_series()
    others = jax.lax.psum(present.astype(reward.dtype), axes) - present
    return (jax.lax.psum(reward, axes) - reward) / jnp.maximum(others, 1.0)
