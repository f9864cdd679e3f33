"""What does not fit is refused before anything runs, with the remedy."""

import jax
import jax.numpy as jnp
import jaxtyping
import numpyro.distributions as dist
import pytest

import mcfo
from mcfo import PIMH, SMC, Estimator, Objective, Series
from mcfo.errors import for_the_command_line
from mcfo.gradients.registry import RULES, name_of, rule_by_name
from mcfo.resampling import Always, Systematic
from mcfo.rules import DReG, FilterScore, Fisher, Pathwise
from support.memory import Remembering
from support.problems import data, scalar_model

KEY = jax.random.key(0)


class Tossing(mcfo.Proposal):
    """A proposal for binary latents: it cannot be reparameterized."""

    logit: jax.Array

    def encode(self, series):
        return None

    def initial(self, prior, context):
        return dist.Bernoulli(logits=self.logit)

    def step(self, prior, memory, context):
        return dist.Bernoulli(logits=self.logit)


def test_draws_of_the_filter_score_where_they_cannot_be():
    with pytest.raises(ValueError, match="at least 1, but got 0"):
        FilterScore(draws=0)
    with pytest.raises(ValueError, match="PIMH's draws come from an accepted sweep"):
        mcfo.objectives.mcfo(5, sweeps=2, theta="filter-score-draws-2")
    with pytest.raises(ValueError, match="Remembering is not Markov, so that gradients cross time"):
        mcfo.objectives.mcfo(5, theta=FilterScore(draws=2), phi="inclusive-kl").loss(
            Remembering(), mcfo.proposals.Bootstrap(), BINARY, key=KEY
        )


BINARY = Series.from_values([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])


def test_a_proposal_that_cannot_be_reparameterised():
    model, proposal = Remembering(), Tossing(jnp.array(0.1))
    with pytest.raises(ValueError, match=r"Tossing\.initial\(\) returned Bernoulli.*Use phi=\"inclusive-kl\", and"):
        mcfo.objectives.mcfo(5).loss(model, proposal, BINARY, key=KEY)
    with pytest.raises(ValueError, match=r"Pathwise for theta .* Use objective=\"mcfo\" with theta=\"filter-score\""):
        mcfo.objectives.aesmc(5).check(model, proposal, jax.tree.map(lambda array: array[None], BINARY))
    loss, _ = mcfo.objectives.mcfo(5, phi="inclusive-kl").loss(model, proposal, BINARY, key=KEY)
    assert jnp.isfinite(loss)
    # Where there is nothing to learn of the proposal, it need not be differentiable.
    assert jnp.isfinite(mcfo.objectives.mcfo(5).loss(model, mcfo.proposals.Bootstrap(), BINARY, key=KEY)[0])


def test_a_rule_has_the_name_that_finds_it():
    for side, rules in RULES.items():
        for name in [*rules, *(["fisher-lag-7", "filter-score-draws-2"] if side == "theta" else ["path-kl-lag-7"])]:
            assert name_of(rule_by_name(name, side)) == name


def refusal(objective, proposal):
    with pytest.raises(ValueError, match=type(proposal).__name__) as error:
        objective.check(Remembering(), proposal, jax.tree.map(lambda array: array[None], BINARY))
    return str(error.value)


@pytest.mark.parametrize(
    ("objective", "proposal", "python", "command_line"),
    [
        (
            mcfo.objectives.mcfo(5, theta="fisher-lag-50"),
            Tossing(jnp.array(0.1)),
            'Use phi="inclusive-kl", and leave theta="fisher-lag-50" and everything else as they are.',
            "Use --phi inclusive-kl, and leave --theta fisher-lag-50 and everything else as they are.",
        ),
        (
            mcfo.objectives.aesmc(5),
            Tossing(jnp.array(0.1)),
            'Use objective="mcfo" with theta="filter-score" and phi="inclusive-kl".',
            "Use --objective mcfo with --theta filter-score and --phi inclusive-kl.",
        ),
        (
            mcfo.objectives.bootstrap(5, theta="fisher-lag-3"),
            Tossing(jnp.array(0.1)),
            'Give Bootstrap(), or learn the proposal: objective="mcfo" with theta="fisher-lag-3".',
            "Leave out --proposal, or learn the proposal: --objective mcfo with --theta fisher-lag-3.",
        ),
    ],
)
def test_a_remedy_keeps_what_was_chosen_and_speaks_the_language_of_the_caller(
    objective, proposal, python, command_line
):
    assert python in refusal(objective, proposal)
    with for_the_command_line():
        found = refusal(objective, proposal)
        assert command_line in found
        assert python not in found
    # Afterwards it is Python's again.
    assert python in refusal(objective, proposal)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: mcfo.objectives.fivo(5, full=True, resampling=Systematic()),
            r"product over particles.*Use resampling=Multin",
        ),
        (
            lambda: mcfo.objectives.fivo(5, full=True, criterion=mcfo.resampling.ESSBelow(0.5)),
            r"fixed schedule.*Use criterion=Always",
        ),
        (lambda: mcfo.objectives.mcfo(5, sweeps=2, phi="pathwise"), r"PIMH chose the sweep by that noise.*Use an SMC"),
        (lambda: mcfo.objectives.mcfo(5, sweeps=2, theta="resampling-score"), "PIMH chose the sweep by that noise"),
        (lambda: Objective(Estimator(SMC(5), DReG())), "DReG is no rule for theta. Use one of: filter-score"),
        (lambda: mcfo.objectives.mcfo(5, phi=FilterScore()), "FilterScore is no rule for phi"),
        (lambda: mcfo.objectives.mcfo(5, phi="derg"), "There is no rule 'derg' for phi. Did you mean 'dreg'"),
        (lambda: mcfo.objectives.mcfo(5, theta="fisher-lag-0"), "lag of Fisher must be a whole number, at least 1"),
        (lambda: Fisher(lag=1.5), "at least 1, but got 1.5"),
        (
            lambda: mcfo.objectives.mcfo(5, phi="path-kl-lag-0"),
            r"lag of PathKL must be.* for no lag use InclusiveKL\(\)",
        ),
        (lambda: mcfo.objectives.mcfo(5, phi="fisher-lag-2"), "There is no rule 'fisher-lag-2' for phi"),
        (lambda: mcfo.objectives.by_name("mfco", particles=5), "There is no objective 'mfco'. Did you mean 'mcfo'"),
        (
            lambda: mcfo.objectives.by_name("mcfo", particle=5),
            "mcfo has no option 'particle'. Did you mean 'particles'",
        ),
        (lambda: mcfo.objectives.by_name("mcfo"), "mcfo needs a number of particles"),
        (lambda: mcfo.objectives.elbo(2), r"The ELBO has one particle, but got 2. For more use iwae\(2\)"),
        (lambda: mcfo.objectives.mcfo(0), "at least one particle"),
        (lambda: mcfo.objectives.mcfo(5, sweeps=0), "at least one iteration"),
        (lambda: mcfo.objectives.mcfo(5, proposal_particles=0), "at least one particle"),
    ],
)
def test_refused_when_made(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Estimator(SMC, Pathwise()), "sampler must be a SMC, but got the class SMC"),
        (lambda: Estimator(SMC(5), Pathwise), "rule must be a Rule, but got the class Pathwise"),
        (lambda: Objective(SMC(5)), "theta must be a Estimator"),
        (lambda: Objective(Estimator(PIMH(SMC(5), 2), FilterScore()), SMC(5)), "phi must be a Estimator"),
    ],
)
def test_refused_as_another_kind(make, message, monkeypatch):
    # Users have no type checker at run time; the tests' own would answer first.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(TypeError, match=message):
        make()


def test_a_property_and_not_a_name_demands_the_prior():
    model = scalar_model()
    proposal, series = mcfo.proposals.AffineGaussian.optimal(model), data(model, 4)
    estimator = Estimator(SMC(5), FilterScore())
    Objective(estimator, name="bootstrap").check(model, proposal, series)
    renamed = Objective(estimator, name="other", prior_proposal=True)
    for objective in (renamed, renamed.with_backward(mcfo.objectives.Reverse(window=2))):
        objective.check(model, mcfo.proposals.Bootstrap(), series)
        with pytest.raises(ValueError, match=r"other\(\) filters with the model's own prior"):
            objective.check(model, proposal, series)


def test_refused_when_called(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    model = scalar_model()
    proposal, series = mcfo.proposals.AffineGaussian.optimal(model), data(model, 4)
    with pytest.raises(ValueError, match=r"bootstrap\(\) filters with the model's own prior, but got the proposal Aff"):
        mcfo.objectives.bootstrap(5).loss(model, proposal, series, key=KEY)
    with pytest.raises(TypeError, match="batch must be a Series"):
        mcfo.objectives.mcfo(5).loss(model, proposal, series.observations, key=KEY)
    nested = jax.tree.map(lambda array: array[None, None], series)
    with pytest.raises(ValueError, match=r"\(series, steps, dimensions\) is wanted"):
        mcfo.objectives.mcfo(5).loss(model, proposal, nested, key=KEY)
    assert mcfo.objectives.mcfo(5, criterion=Always()).runs == 1
