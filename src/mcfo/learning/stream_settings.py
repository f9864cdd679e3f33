"""How a stream is learned from: one frozen record."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import optax

from mcfo.errors import InputError, spelled
from mcfo.gradients.registry import rule_by_name
from mcfo.gradients.rules import StepRule, has_networks
from mcfo.gradients.score import FilterScore, Genealogical
from mcfo.kalman import is_linear_gaussian
from mcfo.learning.settings import Settings
from mcfo.models.base import Model
from mcfo.objectives.objective import Estimator, Objective
from mcfo.proposals.base import Proposal
from mcfo.smc.filter import SMC

EXACT = "exact"
"""The name of the exact score of a linear Gaussian model, among the rules of a stream."""


@dataclass(frozen=True)
class Learning:
    """How a stream is learned from: one update after every observation.

    With `exact` the model learns by the score of log p(x_t | x_1:t-1), from a Kalman filter beside the particles. Rules
    for particles must be local to a step, as the paper's are, or have a lag, as `fisher-lag-20`: the gradient at step t
    is then the term of step t - 20, along the ancestors of today's particles and with today's weights. The particles
    stay as they were drawn, with earlier parameters, so that rates should be small. For a model that is not Markov,
    gradients are truncated to the step. An update that is not finite is skipped and counted, and an observation that
    makes the filter collapse is refused: it is taken as missing, and counted.

    - `optimizer`: an optimizer of optax, by name.
    - `theta`: a rule, by name. By default `exact` for a linear Gaussian model, and for others `fisher-lag-20`,
      consistent for the score up to what a model remembers for longer than that; for more than a hundred parameters
      `filter-score`, which stores nothing.
    - `phi`: a rule, by name.
    - `fixed`: parameters that are not learned, as in [`Settings`][].
    - `refuse_below`: the log-density, for each observed dimension, below which the filter has collapsed. A Gaussian
      has -1000 at 45 standard deviations.
    """

    learning_rate: float = 1e-3
    optimizer: str = "adam"
    theta: str | None = None
    phi: str = "dreg"
    fixed: tuple[str, ...] = ()
    refuse_below: float = -1000.0

    def resolved(self, model: Model, proposal: Proposal) -> Learning:
        """Return the same with a rule for theta, chosen by the number of parameters where none is named."""
        if self.theta is not None:
            if self.theta == EXACT and not is_linear_gaussian(model):
                raise InputError(
                    f"The score of a {type(model).__name__} is not known exactly. Use 'fisher-lag-20', say."
                )
            return self
        few = EXACT if is_linear_gaussian(model) else "fisher-lag-20"
        return dataclasses.replace(self, theta="filter-score" if has_networks(model, proposal) else few)

    @property
    def exact(self) -> bool:
        """Whether the model learns by its exact score."""
        return self.theta == EXACT

    def transformation(self) -> optax.GradientTransformation:
        """Build the optimizer."""
        return Settings(optimizer=self.optimizer, learning_rate=self.learning_rate).transformation()

    def objective(self, sampler: SMC) -> Objective:
        """Build the objective; rules that look back further than a fixed lag are refused. An exact score needs none."""
        assert self.theta is not None
        theta = FilterScore() if self.exact else rule_by_name(self.theta, "theta")
        phi = rule_by_name(self.phi, "phi")
        for rule in (theta, phi):
            local = isinstance(rule, StepRule) and rule.flow.latents != "all"
            if not local and not (isinstance(rule, Genealogical) and rule.lag is not None):
                raise InputError(
                    f"The rule {rule.name!r} looks back to the first step, but a stream learns in constant memory. Use "
                    f"{spelled('theta', 'fisher-lag-20')} or {spelled('theta', 'filter-score')}, and "
                    f"{spelled('phi', 'dreg')}, {spelled('phi', 'reparameterized')}, {spelled('phi', 'inclusive-kl')} "
                    f"or {spelled('phi', 'path-kl-lag-3')}."
                )
        return Objective(Estimator(sampler, theta), Estimator(sampler, phi))
