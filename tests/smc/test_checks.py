"""Models, proposals and data that do not fit together are refused before anything runs."""

import re

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

from mcfo import SMC, AffineGaussian, Bootstrap, LinearGaussian, MarkovModel, Model, Proposal, Sequence, stack
from support.problems import MODELS, PROPOSALS


def run(model, proposal, values=((0.1,), (0.2,))):
    return SMC(3)(model, proposal, Sequence.from_values(jnp.asarray(values)), key=jax.random.key(0))


class Fixed(Proposal):
    """Proposes from one distribution, whatever happens."""

    law: object

    def encode(self, sequence):
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
        (scalar, lambda: Fixed(3.0), "initial() returned float, which is not a distribution"),
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
    """An emission that does not factorise."""

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
    batch = stack([Sequence.from_values([0.0, 1.0]), Sequence.from_values([0.0])])
    with pytest.raises(ValueError, match=r"For a batch use jax\.vmap"):
        SMC(3)(scalar(), Bootstrap(), batch, key=jax.random.key(0))


def test_inputs_that_the_model_wants_are_asked_for():
    model = LinearGaussian(
        initial_mean=0.0,
        initial_covariance=1.0,
        transition_matrix=0.5,
        transition_covariance=1.0,
        emission_matrix=1.0,
        emission_covariance=1.0,
        transition_inputs=[[1.0]],
    )
    with pytest.raises(ValueError, match="has input matrices but the sequence has no inputs"):
        run(model, Bootstrap())
    with pytest.raises(ValueError, match=r"Use LocallyOptimal\(model\)"):
        AffineGaussian.optimal(model)
