"""The locally optimal proposal over regimes."""

from __future__ import annotations

from typing import Any

from mcfo.errors import spoken
from mcfo.models.regimes import Regimes
from mcfo.proposals.base import Proposal
from mcfo.series import Series
from mcfo.types import Context, Distribution, Memory


class OptimalRegimes(Proposal):
    """p(z_t = k | h_t-1, x_t) ∝ p(z_t = k | h_t-1) p(x_t | z_t = k, h_t-1), summed over the regimes.

    Minimizes the variance of the weight given the past, which is then p(x_t | h_t-1). It has no parameters: the prior
    of the model says how well each regime explains x_t, so that the proposal follows a model that is being learned.
    Doucet, Godsill and Andrieu (2000), proposition 2.
    """

    def encode(self, series: Series) -> Context:
        return series.observations, series.observed

    def initial(self, prior: Any, context: Context) -> Distribution:
        if not isinstance(prior, Regimes):
            raise TypeError(
                f"OptimalRegimes proposes regimes of models such as HiddenMarkov and SwitchingLinearGaussian, but the "
                f"model's latent has the distribution {type(prior).__name__}. "
                + spoken("Use Bootstrap().", "Leave out --proposal.")
            )
        return prior.given(*context)

    def step(self, prior: Any, memory: Memory, context: Context) -> Distribution:
        return prior.given(*context)
