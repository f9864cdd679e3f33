"""What must agree exactly: names for the same thing, ways to compute it, and the other side's silence."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import mcfo
from mcfo import SMC, Estimator, Objective, stack
from mcfo.gradients import draws
from mcfo.gradients.estimate import differentiable_run
from mcfo.gradients.registry import RULES
from mcfo.gradients.rules import ONE_STEP, Lane, is_local
from mcfo.objectives import Accumulated, Reverse
from mcfo.objectives.named import OBJECTIVES
from mcfo.proposals import Bootstrap
from mcfo.resampling import Always, Multinomial, Never, Systematic
from mcfo.rules import FilterScore, StepRule
from mcfo.smc.step import take_step
from support.gradients import PHI, THETA, ascent, flat, off_optimum
from support.problems import data, scalar_model

KEY = jax.random.key(3)
MODEL = scalar_model()
PROPOSAL = off_optimum(MODEL)


def ragged_batch():
    """Two series with gaps, of different lengths."""
    return stack([data(MODEL, 6, missing=True, seed=1), data(MODEL, 4, missing=True, seed=2)])


def gradient(objective, batch=None, model=MODEL, proposal=PROPOSAL):
    batch = ragged_batch() if batch is None else batch
    gradients, run = eqx.filter_jit(ascent)(objective, model, proposal, batch, KEY)
    return np.asarray(flat(*gradients)), np.asarray(run.log_evidence)


def assert_same(first, second):
    for one, other in zip(first, second, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def same_parts(first, second):
    return eqx.tree_equal((first.theta, first.phi, first.runs), (second.theta, second.phi, second.runs)) is True


def test_names_for_the_same_thing():
    assert same_parts(mcfo.objectives.iwae(1), mcfo.objectives.elbo())
    assert same_parts(mcfo.objectives.fivo(6, criterion=Never()), mcfo.objectives.iwae(6))
    assert same_parts(mcfo.objectives.fivo(6, criterion=Always()), mcfo.objectives.aesmc(6))
    assert same_parts(mcfo.objectives.vsmc(6, resampling=Systematic()), mcfo.objectives.aesmc(6))
    assert same_parts(mcfo.objectives.vsmc(6, full=True), mcfo.objectives.fivo(6, full=True))
    assert not same_parts(mcfo.objectives.fivo(6), mcfo.objectives.aesmc(6)), "another schedule is another estimate"
    assert not same_parts(mcfo.objectives.mcfo(6), mcfo.objectives.nasmc(6))


@pytest.mark.slow
def test_fivo_with_nothing_to_resample_is_iwae_and_iwae_with_one_particle_the_elbo():
    assert_same(gradient(mcfo.objectives.fivo(6, full=True, criterion=Never())), gradient(mcfo.objectives.iwae(6)))
    assert_same(gradient(mcfo.objectives.fivo(1, criterion=Always())), gradient(mcfo.objectives.elbo()))


@pytest.mark.slow
def test_theta_is_taught_alike_where_the_proposal_does_not_read_it():
    """Histories then do not depend on theta. (A proposal that falls back to the prior at a gap does read it.)"""
    batch = stack([data(MODEL, 6, seed=1), data(MODEL, 4, seed=2)])
    aesmc, ours, theirs = (
        gradient(made(6), batch) for made in (mcfo.objectives.aesmc, mcfo.objectives.mcfo, mcfo.objectives.nasmc)
    )
    assert_same([ours[0][THETA], ours[1]], [aesmc[0][THETA], aesmc[1]])
    assert_same([theirs[0][THETA], theirs[1]], [aesmc[0][THETA], aesmc[1]])
    assert not np.allclose(ours[0][PHI], aesmc[0][PHI])
    assert not np.allclose(ours[0][PHI], theirs[0][PHI])


def test_the_names_make_what_they_say():
    for name, made in OBJECTIVES.items():
        options = {} if name == "elbo" else {"particles": 4}
        assert mcfo.objectives.by_name(name, **options).name == name == made.__name__
    apart = mcfo.objectives.mcfo(100, proposal_particles=10, sweeps=2)
    assert apart.runs == 2
    assert (apart.theta.sampler.particles, apart.phi.sampler.particles) == (100, 10)


@pytest.fixture
def runs(monkeypatch):
    """How many times a loss runs a filter over the data: its first steps are counted while it is traced."""
    first_steps = []

    def counted(sampler, model, proposal, state, *others):
        first_steps.append(state is None)
        return take_step(sampler, model, proposal, state, *others)

    monkeypatch.setattr(draws, "take_step", counted)

    def count(objective):
        first_steps.clear()
        jax.clear_caches()
        batch = ragged_batch()
        jax.make_jaxpr(lambda key: objective.loss(MODEL, PROPOSAL, batch, key=key)[0])(KEY)
        return sum(first_steps)

    return count


@pytest.mark.ci
def test_equal_samplers_cost_one_run(runs):
    for objective, wanted in (
        (mcfo.objectives.mcfo(6), 1),
        (mcfo.objectives.nasmc(6), 1),
        (mcfo.objectives.mcfo(6, theta="fisher", phi="dreg"), 1),
        (mcfo.objectives.rws(6), 1),
        (mcfo.objectives.iwae(6), 1),
        (mcfo.objectives.alternating(6), 2),
        (mcfo.objectives.mcfo(6, proposal_particles=3), 2),
    ):
        assert (objective.runs, runs(objective)) == (wanted, wanted)


@pytest.mark.ci
@pytest.mark.parametrize(
    "name",
    [
        name if name in ("fisher", "inclusive-kl") else pytest.param(name, marks=pytest.mark.slow)
        for name in sorted({*RULES["theta"], *RULES["phi"]})
    ],
)
def test_every_pass_gives_the_same(name):
    rule = (RULES["theta"] | RULES["phi"])[name]()
    sampler, batch = SMC(5, Multinomial(), Always()), ragged_batch()
    lanes = (Lane(rule, "theta" in rule.learns or type(rule) in ONE_STEP, "phi" in rule.learns),)
    ways = [Reverse(), Reverse(checkpoint=True), Reverse(series=1)]
    if isinstance(rule, StepRule):
        ways.append(Reverse(window=6, series=1))
    if is_local(rule, MODEL):
        ways.extend([Accumulated(1), Accumulated(2), Accumulated(100)])

    @eqx.filter_jit
    def both_ways(model, proposal):
        def run(modules, way):
            return differentiable_run(sampler, lanes, *modules, batch, KEY, way)

        return [eqx.filter_grad(run, has_aux=True)((model, proposal), way) for way in ways]

    (first, run), *others = both_ways(MODEL, PROPOSAL)
    assert np.any(flat(*first) != 0)
    for gradients, other_run in others:
        for one, other in zip(jax.tree.leaves(gradients), jax.tree.leaves(first), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(other_run.log_evidence, run.log_evidence, rtol=1e-12)


@pytest.mark.slow
def test_one_surrogate_for_both_sides_is_two():
    """MCFO's shared pass against each rule by itself, with a proposal that reads theta through the prior."""

    class Residual(mcfo.Proposal):
        weight: jax.Array

        def encode(self, series):
            return series.observations

        def initial(self, prior, context):
            return self.step(prior, None, context)

        def step(self, prior, memory, context):
            mean = prior.mean + self.weight * (context - prior.mean)
            return dist.Normal(mean, jnp.sqrt(prior.variance)).to_event(1)

    proposal, batch = Residual(jnp.array(0.3)), ragged_batch()
    sampler = SMC(5, Systematic(), Always())
    grad = eqx.filter_jit(eqx.filter_grad(lambda both, objective: objective.loss(*both, batch, key=KEY)[0]))
    for phi in ("reparameterized", "dreg", "sticking-the-landing"):
        together = grad((MODEL, proposal), mcfo.objectives.mcfo(5, phi=phi))
        theta_alone = grad((MODEL, proposal), Objective(Estimator(sampler, FilterScore()), None))
        phi_apart = Objective(Estimator(sampler, mcfo.rules.Fisher()), Estimator(sampler, RULES["phi"][phi]()))
        for one, other in zip(jax.tree.leaves(together[0]), jax.tree.leaves(theta_alone[0]), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(together[1].weight, grad((MODEL, proposal), phi_apart)[1].weight, rtol=1e-10)
    leaky = grad((MODEL, proposal), mcfo.objectives.aesmc(5))
    assert not np.allclose(leaky[0].transition_matrix, together[0].transition_matrix)


@pytest.mark.ci
@pytest.mark.parametrize(
    "objective",
    [
        mcfo.objectives.mcfo(5, backward=Accumulated(1)),
        pytest.param(mcfo.objectives.mcfo(5, theta="fisher-lag-2"), marks=pytest.mark.slow),
        pytest.param(mcfo.objectives.fivo(5, full=True), marks=pytest.mark.slow),
    ],
    ids=["accumulated", "fixed-lag", "resampling-score"],
)
def test_a_batch_is_the_mean_of_its_series_and_padding_changes_nothing(objective):
    pair = [data(MODEL, 6, missing=True, seed=1, series_id=1), data(MODEL, 4, missing=True, seed=2, series_id=2)]
    together = gradient(objective, stack(pair))
    apart = [gradient(objective, one) for one in pair]
    np.testing.assert_allclose(together[0], np.mean([one[0] for one in apart], axis=0), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(together[1], np.concatenate([one[1] for one in apart]), rtol=1e-12)


@pytest.mark.ci
def test_nan_where_nothing_was_observed_reaches_no_gradient():
    series = data(MODEL, 6, missing=True, seed=1)
    assert np.isnan(np.asarray(series.observations)).any()
    assert np.isfinite(gradient(mcfo.objectives.aesmc(5), series)[0]).all()


@pytest.mark.slow
def test_the_value_is_the_bound_whatever_the_rules():
    batch = ragged_batch()
    value = eqx.filter_jit(lambda objective: objective.loss(MODEL, PROPOSAL, batch, key=KEY)[0])
    traces = eqx.filter_jit(
        jax.vmap(lambda one: SMC(5, criterion=Always())(MODEL, PROPOSAL, one, key=KEY).log_evidence)
    )(batch)
    for objective in (mcfo.objectives.mcfo(5, backward=Accumulated(1)), mcfo.objectives.aesmc(5)):
        np.testing.assert_allclose(value(objective), -traces.mean(), rtol=1e-12)
    pimh = mcfo.objectives.mcfo(5, sweeps=3)
    chains = eqx.filter_jit(jax.vmap(lambda one: pimh.theta.sampler(MODEL, PROPOSAL, one, key=KEY).log_evidences))(
        batch
    )
    np.testing.assert_allclose(value(pimh), -chains.mean(), rtol=1e-12)


@pytest.mark.ci
def test_a_proposal_without_parameters_is_left_alone():
    gradients, _ = eqx.filter_jit(ascent)(mcfo.objectives.bootstrap(5), MODEL, Bootstrap(), ragged_batch(), KEY)
    same, _ = eqx.filter_jit(ascent)(mcfo.objectives.mcfo(5), MODEL, Bootstrap(), ragged_batch(), KEY)
    assert np.all(np.asarray(gradients[0].transition_matrix) == np.asarray(same[0].transition_matrix))
