"""Where gradients go wrong quietly: outer transformations, twins of a model, imputed values, dead particles."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import mcfo
from mcfo import SMC, Estimator, MarkovModel, Model, Objective, Proposal, Series
from mcfo.gradients import estimate, replay
from mcfo.objectives import Accumulated, Reverse
from mcfo.resampling import Criterion, ESSBelow
from mcfo.rules import FilterScore
from support.gradients import PHI, ascent, flat, off_optimum
from support.memory import Remembering
from support.problems import scalar_model

MODEL = scalar_model()
PROPOSAL = off_optimum(MODEL)
SERIES = Series.from_values([0.4, 1.1, -0.7, 0.2])


@pytest.mark.parametrize("way", [Accumulated(1), pytest.param(Reverse(), marks=pytest.mark.slow)])
def test_the_gradient_of_many_seeds_is_the_mean_of_their_gradients(way):
    objective, keys = mcfo.objectives.mcfo(3, backward=way), jax.random.split(jax.random.key(0), 3)

    def loss(both, key):
        return objective.loss(*both, SERIES, key=key)[0]

    @eqx.filter_jit
    def two_ways(both):
        together = eqx.filter_grad(lambda both: jnp.mean(jax.vmap(lambda key: loss(both, key))(keys)))(both)
        apart = jax.vmap(lambda key: eqx.filter_grad(loss)(both, key))(keys)
        return flat(*together), jnp.mean(jax.vmap(lambda one: flat(*one))(apart), axis=0)

    together, apart = two_ways((MODEL, PROPOSAL))
    np.testing.assert_allclose(together, apart, rtol=1e-10)


TWINS = [(None, "inclusive-kl"), (4, "dreg")]


class Twin(Model):
    """A Markov model that does not say so."""

    original: MarkovModel

    def start(self, inputs):
        return jnp.zeros(1)

    def initial(self, memory, inputs):
        return self.original.initial(memory, inputs)

    def transition(self, memory, inputs):
        return self.original.transition(memory, inputs)

    def emission(self, memory, latent, inputs):
        return self.original.emission(memory, latent, inputs)

    def advance(self, memory, latent, observation):
        return latent


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sweeps", "phi"),
    [
        # In CI each kind of sampler and each kind of rule; `make verify` runs all pairs.
        pytest.param(sweeps, phi, marks=() if (sweeps, phi) in TWINS else pytest.mark.verify)
        for sweeps in (None, 4)
        for phi in ("reparameterized", "dreg", "sticking-the-landing", "inclusive-kl")
    ],
)
def test_a_markov_model_that_does_not_say_so_learns_the_same(phi, sweeps):
    objective = mcfo.objectives.mcfo(5, sweeps=sweeps, phi=phi)
    grad = eqx.filter_jit(lambda model: ascent(objective, model, PROPOSAL, SERIES, jax.random.key(1))[0])
    plain, twin = grad(MODEL), grad(Twin(MODEL))
    np.testing.assert_allclose(flat(twin[0].original, twin[1]), flat(*plain), rtol=1e-9, atol=1e-12)


class Echo(Model):
    """x_t = z_t + noise and z_t = x_t-1 + noise: a memory of the observation, which must be imputed at a gap."""

    level: jax.Array

    def start(self, inputs):
        return jnp.zeros(1)

    def initial(self, memory, inputs):
        return self.transition(memory, inputs)

    def transition(self, memory, inputs):
        return dist.Normal(memory, 1.0).to_event(1)

    def emission(self, memory, latent, inputs):
        return dist.Normal(latent + self.level, 1.0).to_event(1)

    def advance(self, memory, latent, observation):
        return observation


class Centered(Proposal):
    """The prior, and at the first step with a mean to learn."""

    shift: jax.Array

    def encode(self, series):
        return None

    def initial(self, prior, context):
        return dist.Normal(prior.mean + self.shift, jnp.sqrt(prior.variance)).to_event(1)

    def step(self, prior, memory, context):
        return prior


@pytest.mark.ci
def test_what_is_imputed_teaches_no_proposal():
    """At a gap the prior is the optimal proposal, so DReG is zero, whatever was drawn for the observation."""
    series = Series.from_values([np.nan, 2.0])
    gradients, _ = eqx.filter_jit(ascent)(
        mcfo.objectives.mcfo(4, phi="dreg"), Echo(jnp.array(0.0)), Centered(jnp.array(0.0)), series, jax.random.key(0)
    )
    assert abs(float(gradients[1].shift)) < 1e-12
    assert abs(float(gradients[0].level)) > 1e-3


class Exploding(MarkovModel):
    """x_t ~ N(0, exp(z_t)): where z_t is far below zero the density is zero and its derivative is not finite."""

    level: jax.Array

    def initial(self, memory, inputs):
        return dist.Normal(jnp.zeros(1), 1.0).to_event(1)

    def transition(self, memory, inputs):
        return dist.Normal(0.5 * memory + self.level, 1.0).to_event(1)

    def emission(self, memory, latent, inputs):
        return dist.Normal(0.0, jnp.exp(latent)).to_event(1)


class Reckless(Proposal):
    """Far too wide at the first step."""

    log_width: jax.Array

    def encode(self, series):
        return None

    def initial(self, prior, context):
        return dist.Normal(prior.mean, jnp.exp(self.log_width)).to_event(1)

    def step(self, prior, memory, context):
        return dist.Normal(prior.mean, jnp.exp(0.1 * self.log_width)).to_event(1)


@pytest.mark.parametrize(
    "objective",
    [
        mcfo.objectives.mcfo(8, backward=Accumulated(1)),
        pytest.param(mcfo.objectives.mcfo(8, phi="dreg"), marks=pytest.mark.slow),
        pytest.param(mcfo.objectives.mcfo(8, theta="fisher", criterion=ESSBelow(0.0)), marks=pytest.mark.slow),
        pytest.param(mcfo.objectives.aesmc(8), marks=pytest.mark.slow),
        pytest.param(mcfo.objectives.iwae(8), marks=pytest.mark.slow),
        pytest.param(mcfo.objectives.rws(8), marks=pytest.mark.slow),
    ],
    ids=["accumulated", "dreg", "fisher-carried", "aesmc", "iwae", "rws"],
)
def test_the_dead_have_no_say(objective):
    model, proposal = Exploding(jnp.array(0.1)), Reckless(jnp.log(300.0))
    sampler, key = objective.theta.sampler, jax.random.key(2)
    trace = sampler(model, proposal, SERIES, key=key, history=True)
    assert np.isneginf(np.asarray(trace.history.log_weights[0])).any(), "some are dead"
    gradients, run = eqx.filter_jit(ascent)(objective, model, proposal, SERIES, key)
    assert np.isfinite(run.log_evidence).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))


@pytest.mark.ci
@pytest.mark.parametrize(
    "objective",
    [
        pytest.param(mcfo.objectives.mcfo(8, backward=Accumulated(1)), marks=pytest.mark.slow),
        mcfo.objectives.mcfo(8, backward=Accumulated(1), phi="dreg"),
    ],
    ids=["reparameterized", "dreg"],
)
@pytest.mark.parametrize("dead", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_costly_densities_are_repaired_only_where_someone_died(dead, objective, monkeypatch):
    """With networks the densities of a step are the sampler's own, computed once, unless a particle has died."""
    model, proposal = Exploding(jnp.array(0.1)), Reckless(jnp.log(300.0 if dead else 0.1))
    key = jax.random.key(2)
    trace = objective.theta.sampler(model, proposal, SERIES, key=key, history=True)
    assert np.isneginf(np.asarray(trace.history.log_weights)).any() == dead
    found = []
    for deep in (False, True):
        for module in (replay, estimate):
            monkeypatch.setattr(module, "has_networks", lambda *modules, deep=deep: deep)
        jax.clear_caches()
        found.append(eqx.filter_jit(lambda: ascent(objective, model, proposal, SERIES, key)[0])())
    for one, other in zip(*map(jax.tree.leaves, found), strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, other, rtol=1e-10)


def test_objectives_can_be_made_while_tracing():
    @jax.jit
    def loss(threshold):
        shared = mcfo.objectives.fivo(3, criterion=ESSBelow(threshold))
        assert shared.runs == 1
        assert mcfo.objectives.fivo(3).runs == 1
        return shared.loss(MODEL, PROPOSAL, SERIES, key=jax.random.key(0))[0]

    assert np.isfinite(loss(0.5))


@pytest.mark.ci
def test_a_rule_of_ones_own_is_not_mistaken_for_another():
    class Doubled(FilterScore):
        def term(self, step):
            return 2 * step.average(step.log_joint)

    def theta(rule):
        objective = mcfo.objectives.mcfo(3, theta=rule)
        return eqx.filter_jit(ascent)(objective, MODEL, PROPOSAL, SERIES, jax.random.key(0))[0][0].emission_matrix

    np.testing.assert_allclose(theta(Doubled()), 2 * theta(FilterScore()), rtol=1e-10)


def test_the_score_of_ancestors_is_refused_where_it_would_be_wrong():
    class Largest(Criterion):
        def __call__(self, log_weights):
            return jnp.max(log_weights) > -1.0

    with pytest.raises(ValueError, match="Largest decides by the weights"):
        mcfo.objectives.fivo(3, full=True, criterion=Largest())
    gappy = Series.from_values([[0.0, 1.0], [np.nan, 1.0]])
    with pytest.raises(ValueError, match="Remembering is not Markov and values are missing"):
        mcfo.objectives.fivo(3, full=True).check(Remembering(), mcfo.proposals.Bootstrap(), gappy)
    assert Objective(Estimator(SMC(3), FilterScore())).runs == 1
    assert flat(MODEL, PROPOSAL)[PHI].shape == (5,)
