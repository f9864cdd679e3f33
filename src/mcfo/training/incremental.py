"""Learning from one observation at a time."""

from __future__ import annotations

from dataclasses import dataclass

import optax

from mcfo.files import InputError
from mcfo.gradients.names import rule_by_name
from mcfo.gradients.rules import StepRule
from mcfo.objectives.base import Estimator, Objective
from mcfo.smc.filter import SMC
from mcfo.training.settings import Settings


@dataclass(frozen=True)
class Learning:
    """How a stream teaches the model and the proposal: an update after every observation.

    The rules must be of one step, as the paper's are: the gradient of step t is that of its own term, with the
    particles as they came. Of a model that is not Markov, gradients are truncated to the step. Particles that were
    drawn with earlier parameters live on, so that rates should be small. An update that is not finite is skipped and
    counted; a step of which nothing was observed teaches nothing.

    - `optimiser`: of optax, by name.
    - `theta`, `phi`: rules, by name.
    - `fixed`: what is not learned, as in [`Settings`][].
    """

    learning_rate: float = 1e-3
    optimiser: str = "adam"
    theta: str = "filter-score"
    phi: str = "dreg"
    fixed: tuple[str, ...] = ()

    def transformation(self) -> optax.GradientTransformation:
        return Settings(optimiser=self.optimiser, learning_rate=self.learning_rate).transformation()

    def objective(self, sampler: SMC) -> Objective:
        """The two rules; refuses those that look beyond a step."""
        theta, phi = rule_by_name(self.theta, "theta"), rule_by_name(self.phi, "phi")
        for rule in (theta, phi):
            if not isinstance(rule, StepRule) or rule.flow.latents == "all":
                raise InputError(
                    f"The rule {rule.name!r} looks beyond one step, but a stream learns from each step alone. Use "
                    "'filter-score' for theta, and 'dreg', 'reparameterised' or 'inclusive-kl' for phi."
                )
        return Objective(Estimator(sampler, theta), Estimator(sampler, phi))
