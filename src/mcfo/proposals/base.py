"""What a proposal is: q(z | x) for one particle of one series; and the simplest one."""

import abc
from typing import Any, ClassVar

import equinox as eqx

from mcfo.series import Series
from mcfo.types import Context, Distribution, Memory


class Proposal(eqx.Module):
    """A proposal q_φ(z_t | h_t-1, x_1:T); its arrays are φ.

    `encode` reads a whole series, once, before the particles move. What it returns has a leading time axis, and reaches
    `initial` and `step` one step at a time. The model's own distribution of the latent is passed as `prior`, so that a
    proposal can start from it or correct it; numpyro's distributions have a `mean` and a `variance` for that.

    `follows` says whether `following` computes it from the model alone: where it is fixed as a whole, it is then the
    one of the parameters of every update.
    """

    follows: ClassVar[bool] = False

    def following(self, model: Any) -> "Proposal":
        """Return the proposal for a model whose parameters were found by other means; one that is optimal for a model
        follows it, others stay as they are."""
        return self

    @abc.abstractmethod
    def encode(self, series: Series) -> Context:
        """Return all that the steps need of the observations, masks and inputs; time is the first axis."""

    @abc.abstractmethod
    def initial(self, prior: Any, context: Context) -> Distribution:
        """Return q(z_1 | x)."""

    @abc.abstractmethod
    def step(self, prior: Any, memory: Memory, context: Context) -> Distribution:
        """Return q(z_t | h_t-1, x) for t > 1."""


class Bootstrap(Proposal):
    """Proposes from the model's own transition, without the observation.

    The weight is then the emission density alone: correct for every model, wasteful when observations are precise.
    Gordon, Salmond and Smith (1993).
    """

    def encode(self, series: Series) -> Context:
        return None

    def initial(self, prior: Any, context: Context) -> Distribution:
        return prior

    def step(self, prior: Any, memory: Memory, context: Context) -> Distribution:
        return prior
