"""Models, proposals and data that do not fit together are refused before anything runs."""

import re

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import numpyro.distributions as dist
import pytest

from mcfo import PIMH, SMC, MarkovModel, Model, Proposal, Series, describe, kalman_filter, stack
from mcfo.models import LinearGaussian, PoissonCounts
from mcfo.proposals import AffineGaussian, Bootstrap, LocallyOptimal
from mcfo.resampling import ESSBelow
from mcfo.smc import frame_at, frames
from support.problems import MODELS, PROPOSALS


def run(model, proposal, values=((0.1,), (0.2,))):
    return SMC(3)(model, proposal, Series.from_values(jnp.asarray(values)), key=jax.random.key(0))


class Fixed(Proposal):
    """Proposes from one distribution, whatever happens."""

    law: object

    def encode(self, series):
        return None

    def initial(self, prior, context):
        return self.law

    def step(self, prior, memory, context):
        return self.law


def scalar():
    return MODELS["scalar"]()


@pytest.mark.parametrize("particles", [0, -3, 1.5, True])
def test_a_filter_needs_a_particle(particles):
    with pytest.raises((ValueError, TypeError), match=r"at least one particle|particles"):
        SMC(particles)


@pytest.mark.parametrize(
    ("model", "proposal", "message"),
    [
        (
            scalar,
            lambda: Fixed(dist.Normal(jnp.zeros(2), 1.0).to_event(1)),
            "draws latents of shape (2,), but the model",
        ),
        (
            scalar,
            lambda: Fixed(dist.LogNormal(jnp.zeros(1), 1.0).to_event(1)),
            "has support Positive, but the model",
        ),
        (
            scalar,
            lambda: Fixed(dist.Poisson(jnp.ones(1)).to_event(1)),
            "has support IntegerNonnegative, but the model",
        ),
        (scalar, lambda: Fixed(dist.Normal(jnp.zeros(1), 1.0)), "batch shape (1,)"),
        (scalar, lambda: Fixed(3.0), "initial() returned 3.0, which is not a distribution"),
        (MODELS["vector"], Bootstrap, "emission() has event shape (2,), but an observation has shape (1,)"),
        (MODELS["vector"], lambda: PROPOSALS["affine"](scalar()), "shape"),
    ],
    ids=["shape", "support", "discrete", "batch", "no-distribution", "data", "other-model"],
)
def test_misfits_are_refused(model, proposal, message):
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        run(model(), proposal())


def test_the_remedy_for_a_forgotten_event():
    with pytest.raises(ValueError, match=r"Add \.to_event\(1\)"):
        run(scalar(), Fixed(dist.Normal(jnp.zeros(1), 1.0)))


def test_numpy_integers_are_whole_numbers():
    assert SMC(np.int64(3)).particles == 3
    assert PIMH(SMC(3), np.int64(2)).sweeps == 2


def uniform(low, high):
    return dist.Uniform(jnp.full(1, low), jnp.full(1, high)).to_event(1)


class Anything(MarkovModel):
    """A latent with a law of one's choice."""

    law: object

    def initial(self, memory, inputs):
        return self.law

    def transition(self, memory, inputs):
        return self.law

    def emission(self, memory, latent, inputs):
        return dist.Normal(latent, 1.0).to_event(1)


@pytest.mark.parametrize(
    ("prior", "proposal"),
    [
        (lambda: uniform(0.0, 1.0), lambda: dist.Beta(2 * jnp.ones(1), 2.0).to_event(1)),
        (lambda: uniform(0.0, 1.0), lambda: uniform(-1.0, 2.0)),
        (lambda: dist.HalfNormal(jnp.ones(1)).to_event(1), lambda: dist.Gamma(jnp.ones(1), 1.0).to_event(1)),
        (
            lambda: dist.TruncatedNormal(jnp.zeros(1), 1.0, low=0.0).to_event(1),
            lambda: dist.Exponential(jnp.ones(1)).to_event(1),
        ),
        (
            lambda: dist.MultivariateNormal(jnp.zeros(1), jnp.eye(1)),
            lambda: dist.StudentT(3.0, jnp.zeros(1), 1.0).to_event(1),
        ),
    ],
    ids=["unit-beta", "wider", "positive", "truncated", "real"],
)
def test_supports_that_fit_are_accepted(prior, proposal):
    assert jnp.isfinite(run(Anything(prior()), Fixed(proposal())).log_evidence)


def test_integer_parameters_make_real_latents():
    assert jnp.isfinite(run(Anything(dist.Normal(jnp.zeros(1, int), 1).to_event(1)), Bootstrap()).log_evidence)


ONE = Series.from_values([0.1, 0.2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, s, k: s(m, Bootstrap(), [0.1, 0.2], key=k), "series must be a Series, but got list"),
        (lambda m, s, k: s(Bootstrap(), m, ONE, key=k), "model must be a Model, but got Bootstrap"),
        (lambda m, s, k: s(m, Bootstrap, ONE, key=k), "proposal must be a Proposal, but got the class Bootstrap"),
        (lambda m, s, k: s(m, Bootstrap(), ONE, key=0), "key must be one JAX random key, but got 0"),
        (lambda m, s, k: s(m, Bootstrap(), ONE, key=jax.random.split(k, 3)), "but got an array of shape (3,)"),
        (lambda m, s, k: SMC(3, criterion=ESSBelow), "criterion must be a Criterion, but got the class ESSBelow"),
        (lambda m, s, k: SMC(3, resampling="systematic"), "resampling must be a Resampling, but got str"),
        (lambda m, s, k: PIMH(20, 3), "sampler must be a SMC, but got int"),
        (lambda m, s, k: LocallyOptimal(PoissonCounts()), "LocallyOptimal knows the optimum of a LinearGaussian"),
        (
            lambda m, s, k: kalman_filter(PoissonCounts(), ONE),
            "exact for a LinearGaussian model and others with a linear form",
        ),
        (lambda m, s, k: kalman_filter(MODELS["vector"](), ONE), "The model has 2 observed dimensions"),
        (lambda m, s, k: kalman_filter(m, stack([ONE, ONE])), "One Series is wanted"),
        (lambda m, s, k: s.init(m, Bootstrap(), frames(Bootstrap(), ONE), key=k), "one is wanted: frame_at("),
        (lambda m, s, k: frame_at(frames(Bootstrap(), ONE), 2), "There is no step 2: the series has 2"),
        (lambda m, s, k: describe(PIMH(s, 1)(m, Bootstrap(), ONE, key=k)), "For a PIMH chain use chain.trace"),
    ],
)
def test_the_wrong_object_is_named(call, message, monkeypatch):
    """As users run it: without the tests' own type checks, which would come first."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises((TypeError, ValueError, IndexError), match=re.escape(message)):
        call(scalar(), SMC(3), jax.random.key(0))


class Forgetful(Model):
    """Its memory changes shape."""

    def start(self, inputs):
        return jnp.zeros(1)

    def initial(self, memory, inputs):
        return dist.Normal(jnp.zeros(1), 1.0).to_event(1)

    def transition(self, memory, inputs):
        return dist.Normal(memory[:1], 1.0).to_event(1)

    def emission(self, memory, latent, inputs):
        return dist.Normal(latent, 1.0).to_event(1)

    def advance(self, memory, latent, observation):
        return jnp.concatenate([memory, latent])


def test_a_memory_that_grows_is_refused():
    with pytest.raises(ValueError, match=r"advance\(\) returned.*memories that differ"):
        run(Forgetful(), Bootstrap())


class Coupled(MarkovModel):
    """An emission that does not factorize."""

    def initial(self, memory, inputs):
        return dist.Normal(jnp.zeros(1), 1.0).to_event(1)

    def transition(self, memory, inputs):
        return dist.Normal(memory, 1.0).to_event(1)

    def emission(self, memory, latent, inputs):
        return dist.Dirichlet(jnp.exp(jnp.concatenate([latent, -latent])))


def test_single_dimensions_cannot_be_left_out_of_what_does_not_factorise():
    with pytest.raises(ValueError, match=r"Dirichlet cannot leave them out.*or mask whole steps"):
        run(Coupled(), Bootstrap(), [[0.3, 0.7], [jnp.nan, 0.5]])
    whole_steps = run(Coupled(), Bootstrap(), [[0.3, 0.7], [jnp.nan, jnp.nan], [0.5, 0.5]])
    assert jnp.isfinite(whole_steps.log_evidence)


def test_a_batch_is_refused_with_the_remedy():
    batch = stack([Series.from_values([0.0, 1.0]), Series.from_values([0.0])])
    with pytest.raises(ValueError, match=r"For a batch use jax\.vmap"):
        SMC(3)(scalar(), Bootstrap(), batch, key=jax.random.key(0))


def test_inputs_that_the_model_wants_are_asked_for():
    model = LinearGaussian(
        initial_mean=0.0,
        initial_noise=1.0,
        transition_matrix=0.5,
        transition_noise=1.0,
        emission_matrix=1.0,
        emission_noise=1.0,
        transition_inputs=[[1.0]],
    )
    with pytest.raises(ValueError, match="has input matrices but the series has no inputs"):
        run(model, Bootstrap())
    with pytest.raises(ValueError, match=r"Use LocallyOptimal\(model\)"):
        AffineGaussian.optimal(model)
