"""Rules that differentiate through z_t = g_φ(h_t-1, x_t, ε)."""

from __future__ import annotations

from typing import Any, ClassVar

from mcfo.gradients.rules import Flow, Side, Step, StepRule
from mcfo.smc.pimh import PIMH
from mcfo.types import Scalar


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
            "It differentiates a sweep through its noise, but PIMH chose the sweep by that noise. Use an SMC sampler, "
            "or theta='fisher' and phi='reparameterized'."
        )
    return None


ONE_STEP = (Reparameterized, DReG, StickingTheLanding)
"""The rules for phi whose surrogate gives theta the filter score in the same pass."""
