"""Named objectives. Each is an alias of a sampler and two rules."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal

from mcfo.errors import nearest, spoken
from mcfo.gradients.draws import Sampler
from mcfo.gradients.registry import rule_by_name
from mcfo.gradients.rules import Backward, Pathwise, Rule
from mcfo.gradients.score import FilterScore, Fisher, InclusiveKL, PathKL, ResamplingScore
from mcfo.objectives.objective import Estimator, Objective
from mcfo.smc.filter import SMC, sis
from mcfo.smc.pimh import PIMH
from mcfo.smc.resampling import Always, Criterion, ESSBelow, Multinomial, Resampling, Systematic

RESAMPLING: Resampling = Systematic()
CRITERION: Criterion = Always()
"""The defaults of objectives: systematic resampling before every step, as in the papers."""


def mcfo(
    particles: int,
    *,
    proposal_particles: int | None = None,
    sweeps: int | None = None,
    theta: str | Rule = "filter-score",
    phi: str | Rule = "reparameterized",
    resampling: Resampling = RESAMPLING,
    criterion: Criterion = CRITERION,
    backward: Backward | None = None,
) -> Objective:
    """Monte Carlo filtering objectives: MCFO-SMC, and with `sweeps` MCFO-PIMH. Chen et al. (2021).

    **Arguments:**

    - `particles`: K for theta; `proposal_particles` is K for phi, by default the same.
    - `sweeps`: M of PIMH; None for SMC.
    - `theta`, `phi`: rules, by name or as objects: `phi="dreg"`, `theta="fisher"`.
    """

    def sampler(particles: int) -> Sampler:
        smc = SMC(particles, resampling, criterion)
        return smc if sweeps is None else PIMH(smc, sweeps)

    rules = rule_by_name(theta, "theta"), rule_by_name(phi, "phi")
    return _pair(sampler, rules, particles, proposal_particles, "mcfo", backward)


def elbo(particles: int = 1, *, backward: Backward | None = None) -> Objective:
    """The evidence lower bound, reparameterized: [`iwae`][] with one particle. Kingma and Welling (2014)."""
    if particles != 1:
        raise ValueError(
            f"The ELBO has one particle, but got {particles!r}. For more use "
            + spoken(f"iwae({particles!r}).", "--objective iwae.")
        )
    return _both(sis(1), Pathwise(), "elbo", backward)


def iwae(particles: int, *, proposal_particles: int | None = None, backward: Backward | None = None) -> Objective:
    """The log-mean-exp bound over K independent paths, with an unbiased gradient. It is loose for long series.

    Burda et al. (2016).
    """
    return _pair(sis, (Pathwise(), Pathwise()), particles, proposal_particles, "iwae", backward)


def aesmc(
    particles: int,
    *,
    resampling: Resampling = RESAMPLING,
    criterion: Criterion = CRITERION,
    backward: Backward | None = None,
) -> Objective:
    """Σ_t log R_t differentiated through the histories, without the resampling term: biased. Le et al. (2018)."""
    return _both(SMC(particles, resampling, criterion), Pathwise(), "aesmc", backward)


def fivo(
    particles: int,
    *,
    full: bool = False,
    baseline: Literal["past", "others"] | None = "past",
    resampling: Resampling | None = None,
    criterion: Criterion | None = None,
    backward: Backward | None = None,
) -> Objective:
    """[`aesmc`][] with resampling when the effective sample size is low. Maddison et al. (2017).

    With `full` it adds the score of the ancestors and is unbiased; it then resamples multinomially at every step.

    **Arguments:**

    - `baseline`: the baseline of the full gradient; see [`ResamplingScore`][].
    """
    if full:
        sampler = SMC(particles, resampling or Multinomial(), criterion or CRITERION)
        return _both(sampler, ResamplingScore(baseline), "fivo", backward)
    return _both(SMC(particles, resampling or RESAMPLING, criterion or ESSBelow(0.5)), Pathwise(), "fivo", backward)


def vsmc(
    particles: int,
    *,
    full: bool = False,
    baseline: Literal["past", "others"] | None = "past",
    resampling: Resampling = Multinomial(),
    criterion: Criterion = CRITERION,
    backward: Backward | None = None,
) -> Objective:
    """[`aesmc`][] with multinomial resampling; `full` adds the score of the ancestors. Naesseth et al. (2018)."""
    rule = ResamplingScore(baseline) if full else Pathwise()
    return _both(SMC(particles, resampling, criterion), rule, "vsmc", backward)


def alternating(
    particles: int,
    *,
    proposal_particles: int | None = None,
    resampling: Resampling = RESAMPLING,
    criterion: Criterion = CRITERION,
    backward: Backward | None = None,
) -> Objective:
    """AESMC for theta, IWAE for phi. Le et al. (2018)."""
    proposal = sis(particles if proposal_particles is None else proposal_particles)
    model = SMC(particles, resampling, criterion)
    estimators = Estimator(model, Pathwise()), Estimator(proposal, Pathwise())
    return Objective(*estimators, name="alternating", backward=backward)


def nasmc(
    particles: int,
    *,
    proposal_particles: int | None = None,
    resampling: Resampling = RESAMPLING,
    criterion: Criterion = CRITERION,
    backward: Backward | None = None,
) -> Objective:
    """Filter score for theta, inclusive KL for phi. Gu, Ghahramani and Turner (2015)."""
    rules = FilterScore(), InclusiveKL()
    return _pair(lambda k: SMC(k, resampling, criterion), rules, particles, proposal_particles, "nasmc", backward)


def rws(particles: int, *, proposal_particles: int | None = None, backward: Backward | None = None) -> Objective:
    """Reweighted wake-sleep with paths that are never resampled. Bornschein and Bengio (2015)."""
    return _pair(sis, (Fisher(), PathKL()), particles, proposal_particles, "rws", backward)


def bootstrap(
    particles: int,
    *,
    theta: str | Rule = "filter-score",
    resampling: Resampling = RESAMPLING,
    criterion: Criterion = CRITERION,
    backward: Backward | None = None,
) -> Objective:
    """The prior as proposal, and the filter score for theta. Gordon, Salmond and Smith (1993)."""
    estimator = Estimator(SMC(particles, resampling, criterion), rule_by_name(theta, "theta"))
    return Objective(estimator, None, name="bootstrap", prior_proposal=True, backward=backward)


OBJECTIVES: dict[str, Callable[..., Objective]] = {
    objective.__name__: objective
    for objective in (mcfo, elbo, iwae, aesmc, fivo, vsmc, alternating, nasmc, rws, bootstrap)
}


def by_name(name: str, **options: Any) -> Objective:
    """Return the objective of this name: `by_name("mcfo", particles=100, phi="dreg")`."""
    if name not in OBJECTIVES:
        raise ValueError(f"There is no objective {name!r}. {nearest(str(name), OBJECTIVES)}")
    known = inspect.signature(OBJECTIVES[name]).parameters
    for option in options:
        if option not in known:
            raise ValueError(f"{name} has no option {option!r}. {nearest(option, known)}")
    if "particles" not in options and needs_particles(name):
        raise ValueError(f"{name} needs a number of particles: by_name({name!r}, particles=100).")
    return OBJECTIVES[name](**options)


def needs_particles(name: str) -> bool:
    """Return whether the objective of this name needs a number of particles, because it has no default."""
    return inspect.signature(OBJECTIVES[name]).parameters["particles"].default is inspect.Parameter.empty


def _pair(
    sampler: Callable[[int], Sampler],
    rules: tuple[Rule, Rule],
    particles: int,
    proposal_particles: int | None,
    name: str,
    backward: Backward | None,
) -> Objective:
    """Combine the rules of theta and of phi, each with its own number of particles."""
    counts = particles, particles if proposal_particles is None else proposal_particles
    theta, phi = (Estimator(sampler(count), rule) for count, rule in zip(counts, rules, strict=True))
    return Objective(theta, phi, name=name, backward=backward)


def _both(sampler: Sampler, rule: Rule, name: str, backward: Backward | None) -> Objective:
    return Objective(Estimator(sampler, rule), Estimator(sampler, rule), name=name, backward=backward)
