"""How many files of the package a reader must open to follow one call: counted while it is traced."""

import collections
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

import mcfo
from mcfo import SMC, MarkovModel, Proposal, Series

ROOT = Path(mcfo.__file__).parent


class Walk(MarkovModel):
    """A random walk with noise, as a user would write it: its own file is not counted."""

    scale: jax.Array

    def initial(self, memory, inputs):
        return dist.Normal(jnp.zeros(1), 1.0).to_event(1)

    def transition(self, memory, inputs):
        return dist.Normal(memory, self.scale).to_event(1)

    def emission(self, memory, latent, inputs):
        return dist.Normal(latent, 1.0).to_event(1)


class Guided(Proposal):
    """A proposal that moves towards the observation."""

    weight: jax.Array

    def encode(self, series):
        return series.observations

    def initial(self, prior, context):
        return self.step(prior, None, context)

    def step(self, prior, memory, context):
        return dist.Normal(prior.mean + self.weight * (context - prior.mean), 1.0).to_event(1)


def files_passed(call):
    """The files of the package whose functions a call enters, each with how often."""
    entered = collections.Counter()

    def profile(frame, event, argument):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT):
            entered[str(path.relative_to(ROOT))] += 1

    jax.clear_caches()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered


@pytest.fixture
def problem():
    modules = Walk(jnp.array(0.5)), Guided(jnp.array(0.3))
    return modules, Series.from_values([0.4, 1.1, 0.3]), jax.random.key(0)


@pytest.mark.ci
def test_a_filter_passes_through_few_files(problem):
    modules, series, key = problem
    sampler = SMC(5)
    entered = files_passed(lambda: sampler(*modules, series, key=key))
    assert "smc/step.py" in entered
    assert len(entered) <= 12, sorted(entered)


@pytest.mark.ci
def test_a_gradient_passes_through_few_files(problem):
    modules, series, key = problem
    objective = mcfo.objectives.mcfo(5)
    entered = files_passed(lambda: eqx.filter_grad(lambda both: objective.loss(*both, series, key=key)[0])(modules))
    assert "gradients/replay.py" in entered
    assert len(entered) <= 14, sorted(entered)
