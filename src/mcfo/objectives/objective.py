"""Objectives: a sampler and a gradient rule for theta, and a sampler and a rule for phi.

Objective(theta=Estimator(SMC(1000), FilterScore()), phi=Estimator(SMC(10), DReG()))
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from mcfo.errors import spelled, spoken
from mcfo.gradients.draws import Run, Sampler
from mcfo.gradients.estimate import differentiable_run
from mcfo.gradients.registry import RULES, name_of
from mcfo.gradients.rules import (
    ONE_STEP,
    Accumulated,
    Backward,
    Lane,
    PathRule,
    Reverse,
    Rule,
    Side,
    StepRule,
    is_local,
    with_gradient_of,
)
from mcfo.gradients.score import FilterScore, ResamplingScore
from mcfo.models.base import Model
from mcfo.proposals.base import Bootstrap, Proposal
from mcfo.series import Series
from mcfo.smc.compatibility import check_arguments, check_fit, check_instance
from mcfo.smc.filter import SMC
from mcfo.smc.pimh import PIMH
from mcfo.smc.step_scan import frame_at, frames
from mcfo.types import Key, Scalar, is_known

_PHI_TAG = 0x70686900
"""Separates the keys of phi's own run from those of theta's."""


class Estimator(eqx.Module):
    """The estimator of one side's gradient: a sampler, which draws particles, and a rule, which is differentiated."""

    sampler: Sampler
    rule: Rule

    def __check_init__(self):
        if not isinstance(self.sampler, SMC | PIMH):
            check_instance(
                self.sampler, SMC, "sampler", "Use SMC(particles), sis(particles) or PIMH(SMC(particles), 5)"
            )
        check_instance(self.rule, Rule, "rule", "Use Reparameterized(), say")
        objection = self.rule.objection(self.sampler)
        if objection is not None:
            raise ValueError(f"{type(self.rule).__name__} does not fit this {type(self.sampler).__name__}. {objection}")


class Objective(eqx.Module):
    """A variational objective: its value is minus a lower bound of log p(x_1:T), its gradient that of the rules.

    **Arguments:**

    - `theta`: the estimator for the model. The objective's value is the bound of its sampler.
    - `phi`: the estimator for the proposal; None if the proposal does not learn.
    - `prior_proposal`: whether the proposal must be the model's own prior, `Bootstrap()`.
    - `backward`: the way to differentiate the rules' surrogates, [`Accumulated`][] or [`Reverse`][]; None chooses by
      the size of the problem.

    Equal samplers share one run, and equal rules one surrogate; otherwise there are two runs, each with the other side
    frozen.
    """

    theta: Estimator
    phi: Estimator | None
    name: str = eqx.field(static=True)
    prior_proposal: bool = eqx.field(static=True)
    backward: Backward | None
    shares_run: bool = eqx.field(static=True)
    shares_rule: bool = eqx.field(static=True)

    def __init__(
        self,
        theta: Estimator,
        phi: Estimator | None = None,
        *,
        name: str = "objective",
        prior_proposal: bool = False,
        backward: Backward | None = None,
    ):
        self.theta, self.phi, self.name, self.backward = theta, phi, name, backward
        self.prior_proposal = prior_proposal
        if backward is not None:
            check_instance(backward, Backward, "backward", "Use Accumulated(), Reverse(window=100), or None")
        check_instance(theta, Estimator, "theta", "Use Estimator(SMC(100), FilterScore())")
        _check_side(theta.rule, "theta")
        if phi is not None:
            check_instance(phi, Estimator, "phi", "Use Estimator(SMC(100), Reparameterized()), or None")
            _check_side(phi.rule, "phi")
        self.shares_run = phi is None or _same(theta.sampler, phi.sampler)
        self.shares_rule = phi is None or _same(theta.rule, phi.rule)

    def with_backward(self, backward: Backward | None) -> Objective:
        """Return the same objective, differentiated in another way."""
        return Objective(self.theta, self.phi, name=self.name, prior_proposal=self.prior_proposal, backward=backward)

    @property
    def runs(self) -> int:
        """The number of sampler runs over the data in each step."""
        return 1 if self.shares_run else 2

    def loss(self, model: Model, proposal: Proposal, batch: Series, *, key: Key) -> tuple[Scalar, Run]:
        """Return minus the mean bound over a batch of series (or one), and the record of the run.

        The value is -Σ_t log R_t of theta's sampler (of PIMH, the mean over all sweeps). Its gradient by `jax.grad` is
        minus the estimates of the rules: of theta's rule with respect to the model, of phi's with respect to the
        proposal.
        """
        check_arguments(model, proposal, key)
        self.check(model, proposal, batch)
        return _loss(self, model, proposal, _as_batch(batch), key)

    def check(self, model: Model, proposal: Proposal, batch: Series) -> None:
        """Refuse a model and a proposal that a rule cannot learn, before anything runs."""
        if self.prior_proposal and not isinstance(proposal, Bootstrap):
            raise ValueError(
                f"{self.name}() filters with the model's own prior, but got the proposal {type(proposal).__name__}. "
                + spoken("Give Bootstrap()", "Leave out --proposal")
                + f", or learn the proposal: {spelled('objective', 'mcfo')} with "
                f"{spelled('theta', name_of(self.theta.rule))}."
            )
        _check_rules(self, model, proposal, _as_batch(batch))


def _as_batch(batch: Any) -> Series:
    """Return a batch of series, also from a single series."""
    check_instance(batch, Series, "batch", "Read the values with Series.from_values, and stack() several")
    if batch.observations.ndim == 2:
        return jax.tree.map(lambda array: array[None], batch)
    if batch.observations.ndim != 3:
        raise ValueError(
            f"The observations have shape {batch.observations.shape}, but (series, steps, dimensions) is wanted. "
            "Use jax.vmap for more axes."
        )
    return batch


def _check_rules(objective: Objective, model: Model, proposal: Proposal, batch: Series) -> None:
    fits = []

    def fit(model: Model, proposal: Proposal, batch: Series) -> None:
        one = jax.tree.map(lambda array: array[0], batch)
        fits.append(check_fit(model, proposal, frame_at(frames(proposal, one), 0)))

    eqx.filter_eval_shape(fit, model, proposal, batch)
    exact = any(isinstance(one.rule, ResamplingScore) for one in (objective.theta, objective.phi) if one is not None)
    if exact and batch.observed is not None and model.imputes:
        raise ValueError(
            f"{type(model).__name__} is not Markov and values are missing, so they are imputed, and ResamplingScore "
            f"lacks the score of what is drawn. Use {spelled('objective', 'aesmc')}, or "
            f"{spelled('objective', 'mcfo')} with {spelled('theta', 'fisher')}."
        )
    for rule in (one.rule for one in (objective.theta, objective.phi) if one is not None):
        _check_backward(objective.backward, rule, model)
        if isinstance(rule, StepRule) and rule.draws is not None and not is_local(rule, model):
            raise ValueError(
                f"{type(rule).__name__} uses a few particles of each step, but {type(model).__name__} is not "
                "Markov, so that gradients cross time. Leave out the draws."
            )
    rigid = fits[0].rigid
    if rigid is None:
        return
    for side, estimator in (("theta", objective.theta), ("phi", objective.phi)):
        if estimator is None or estimator.rule.flow.latents == "none" or (side == "phi" and not _has_arrays(proposal)):
            continue
        raise ValueError(
            f"{type(estimator.rule).__name__} for {side} differentiates through draws and needs a reparameterized "
            f"proposal, but {type(proposal).__name__}.{rigid}, which is not. "
            + _without_draws(objective, side)
            + " If its draws are differentiable in its parameters, give the distribution has_rsample = True."
        )


def _without_draws(objective: Objective, side: str) -> str:
    """What learns a proposal that cannot be reparameterized; what else was chosen stays."""
    theta = objective.theta.rule
    fitting = theta if theta.flow.latents == "none" else FilterScore()
    rules = [spelled("theta", name_of(fitting)), spelled("phi", "inclusive-kl")]
    if objective.name != "mcfo":
        # The others have rules of their own, so that both are named.
        return f"Use {spelled('objective', 'mcfo')} with {' and '.join(rules)}."
    if side == "phi":
        return f"Use {rules[1]}, and leave {rules[0]} and everything else as they are."
    return f"Use {spelled('theta', 'fisher')} or {spelled('theta', 'filter-score')}."


def _check_backward(backward: Backward | None, rule: Rule, model: Model) -> None:
    """Refuse a `backward` that is wrong for a rule."""
    if isinstance(backward, Accumulated) and not is_local(rule, model):
        raise ValueError(
            f"Accumulated() adds up gradients that stay within a step, but those of {type(rule).__name__} with "
            f"{type(model).__name__} cross time. Use backward=Reverse(checkpoint=True) to save memory, or leave it out."
        )
    if not isinstance(backward, Reverse):
        return
    if backward.window is not None and isinstance(rule, PathRule):
        raise ValueError(
            f"{type(rule).__name__} adds up over the whole series, which windows would cut into pieces. Leave out "
            f"the window, or use a rule of each step: {spelled('theta', 'filter-score')}."
        )
    if backward.series is not None and isinstance(rule, ResamplingScore) and rule.baseline == "others":
        raise ValueError(
            "The baseline of ResamplingScore compares the series of a batch, which groups of series would separate. "
            "Leave out series=, or use baseline='past'."
        )


def _check_side(rule: Rule, side: Side) -> None:
    if side not in rule.learns:
        fitting = ", ".join(sorted(RULES[side]))
        raise ValueError(f"{type(rule).__name__} is no rule for {side}. Use one of: {fitting}.")


def _same(first: Any, second: Any) -> bool:
    """Return whether two modules are equal; for arrays that are being traced, whether they are the same objects."""
    if jax.tree.structure(first) != jax.tree.structure(second):
        return False
    return all(
        one is other or (is_known((one, other)) and bool(eqx.tree_equal(one, other)))
        for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    )


def _has_arrays(module: Any) -> bool:
    return any(eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(module))


@eqx.filter_jit
def _loss(objective: Objective, model: Model, proposal: Proposal, batch: Series, key: Key) -> tuple[Scalar, Run]:
    def run(sampler: Sampler, lanes: tuple[Lane, ...], key: Key) -> tuple[Scalar, Run]:
        return differentiable_run(sampler, lanes, model, proposal, batch, key, objective.backward)

    theta, phi = objective.theta, objective.phi
    if phi is None or not _has_arrays(proposal):
        surrogate, result = run(theta.sampler, (Lane(theta.rule, True, False),), key)
    elif not objective.shares_run:
        surrogate, result = run(theta.sampler, (Lane(theta.rule, True, False),), key)
        of_phi, _ = run(phi.sampler, (Lane(phi.rule, False, True),), jax.random.fold_in(key, _PHI_TAG))
        surrogate = surrogate + of_phi
    elif objective.shares_rule or _are_one(objective):
        surrogate, result = run(theta.sampler, (Lane(phi.rule, True, True),), key)
    else:
        # The rules differ, but share the particles.
        surrogate, result = run(theta.sampler, (Lane(theta.rule, True, False), Lane(phi.rule, False, True)), key)
    count = len(batch.observations)
    bound = jax.lax.stop_gradient(jnp.mean(result.log_evidence))
    return with_gradient_of(-bound, (-surrogate / count).astype(bound.dtype)), jax.lax.stop_gradient(result)


def _are_one(objective: Objective) -> bool:
    """Return whether phi's surrogate gives theta's gradient too. With PIMH, phi redraws latents, so it does not."""
    theta, phi = objective.theta, objective.phi
    is_one_step = phi is not None and type(phi.rule) in ONE_STEP and isinstance(phi.sampler, SMC)
    return is_one_step and type(theta.rule) is FilterScore and theta.rule.draws is None
