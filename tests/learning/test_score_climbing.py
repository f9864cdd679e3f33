"""Score climbing: the trajectories of conditional SMC are part of what is learned; and the unbiased score."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mcfo
import mcfo.learning.trainer
from mcfo import Series, stack
from mcfo.learning.parameters import named_arrays
from mcfo.models import LinearGaussian
from mcfo.proposals import AffineGaussian, Bootstrap
from mcfo.smc import frames
from mcfo.smc.trajectory import path_log_density
from support.gradients import THETA, ascent, exact_score, flat
from support.learning import make_series
from support.means import assert_mean
from support.memory import Remembering
from support.problems import data, scalar_model


@pytest.mark.ci
def test_the_gradient_is_the_score_of_the_trajectory():
    """Of a model with memory and gaps: what was imputed for the trajectory counts too."""
    series_list = [
        Series.from_values([[1, np.nan], [0, 0], [np.nan, 1], [1, 1]]),
        Series.from_values([[0, 1], [np.nan, 0]]),
    ]
    batch, model = stack(series_list), Remembering()
    gradients, run = ascent(
        mcfo.objectives.mcfo(3, theta="score-climbing"), model, Bootstrap(), batch, jax.random.key(0)
    )

    @eqx.filter_grad
    def expected(model):
        def one(series, path):
            return path_log_density(model, frames(Bootstrap(), series), path)

        return jnp.mean(jax.vmap(one)(batch, run.trajectories))

    np.testing.assert_allclose(gradients[0].weights, expected(model).weights, rtol=1e-6)
    assert jnp.isfinite(gradients[0].weights).all()
    assert (jnp.abs(gradients[0].weights) > 0).all()


@eqx.filter_jit
def chained(objective, model, proposal, series, key, *, chains, sweeps):
    """Gradients averaged over chains of updates that change nothing: one row for each chain."""

    def chain(key):
        begin, *keys = jax.random.split(key, sweeps + 1)
        batch = jax.tree.map(lambda array: jnp.asarray(array)[None], series)
        paths = objective.first_trajectories(model, proposal, batch, key=begin)

        def update(paths, key):
            def loss(both):
                return objective.loss(*both, batch, key=key, trajectories=paths)

            gradients, run = eqx.filter_grad(loss, has_aux=True)((model, proposal))
            return run.trajectories, -flat(*gradients)

        found = jax.lax.scan(update, paths, jnp.stack(keys))[1]
        return jnp.mean(found[sweeps // 4 :], axis=0)

    return jax.lax.map(chain, jax.random.split(key, chains), batch_size=chains)


@pytest.mark.ci
def test_its_average_over_sweeps_is_the_score_for_few_particles():
    model = LinearGaussian.scalar(0.8, 1.08)
    series = data(scalar_model(), 6, missing=True, seed=3)
    proposal, exact = AffineGaussian.optimal(model), np.asarray(exact_score(model, series))
    options = {"chains": 400, "sweeps": 60}
    climbing = mcfo.objectives.mcfo(3, theta="score-climbing", phi="score-climbing")
    found = np.asarray(chained(climbing, model, proposal, series, jax.random.key(1), **options))
    assert_mean(found[:, THETA], exact, sigmas=4.5)
    # Negative control: Fisher's identity by as few particles of an ordinary filter is biased.
    fisher = mcfo.objectives.mcfo(3, theta="fisher")

    @jax.jit
    def once(key):
        return flat(*ascent(fisher, model, proposal, series, key)[0])

    filtered = jax.lax.map(once, jax.random.split(jax.random.key(2), 20_000), batch_size=1000)
    with pytest.raises(AssertionError, match="standard errors"):
        assert_mean(filtered[:, THETA], exact, sigmas=4.5)


def fitted(folder, steps, *, resume=False):
    model = scalar_model()
    return mcfo.fit(
        model,
        AffineGaussian.optimal(model),
        make_series(5),
        objective=mcfo.objectives.mcfo(3, theta="score-climbing", phi="score-climbing"),
        out=folder,
        resume=resume,
        steps=steps,
        batch=2,
        seeds=(0, 1),
        buckets=2,
        log_every=2,
        devices=1,
        checkpoint_seconds=0.0,
    )


@pytest.mark.ci
def test_trajectories_continue_after_an_interruption(tmp_path, monkeypatch):
    whole = fitted(tmp_path / "whole", 6)
    advance, calls = mcfo.learning.trainer.Trainer.advance, []

    def interrupted(trainer, state):
        calls.append(state)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return advance(trainer, state)

    with monkeypatch.context() as patch:
        patch.setattr(mcfo.learning.trainer.Trainer, "advance", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fitted(tmp_path / "parts", 6)
    assert any("trajectories" in name for name in named_arrays(calls[-1]))
    moved = jax.tree.map(lambda old, new: bool((old != new).any()), calls[0].trajectories, calls[-1].trajectories)
    assert all(jax.tree.leaves(moved))
    resumed = fitted(tmp_path / "parts", 6, resume=True)
    for seed, other in zip(whole.seeds, resumed.seeds, strict=True):
        assert eqx.tree_equal((seed.model, seed.proposal), (other.model, other.proposal))


def test_samplers_and_rules_that_do_not_belong_together_are_refused():
    with pytest.raises(ValueError, match=r"Fisher does not fit this ConditionalSMC.*particles of SMC or PIMH"):
        mcfo.Estimator(mcfo.ConditionalSMC(3), mcfo.rules.Fisher())
    with pytest.raises(ValueError, match=r"ScoreClimbing does not fit this SMC.*particles of ConditionalSMC"):
        mcfo.Estimator(mcfo.SMC(3), mcfo.rules.ScoreClimbing())
    with pytest.raises(ValueError, match="Leave out sweeps=5"):
        mcfo.objectives.mcfo(3, theta="score-climbing", sweeps=5)
    with pytest.raises(ValueError, match="same number of particles"):
        mcfo.objectives.mcfo(3, theta="score-climbing", phi="score-climbing", proposal_particles=4)


@pytest.mark.ci
def test_the_unbiased_rule_has_the_score_as_its_mean():
    model = LinearGaussian.scalar(0.8, 1.08)
    series = data(scalar_model(), 5, missing=True, seed=3)
    proposal, exact = AffineGaussian.optimal(model), np.asarray(exact_score(model, series))
    objective = mcfo.objectives.mcfo(3, theta="unbiased")

    @jax.jit
    def once(key):
        gradients, run = ascent(objective, model, proposal, series, key)
        return flat(*gradients), run.log_evidence

    found, evidence = jax.lax.map(once, jax.random.split(jax.random.key(2), 1000), batch_size=1000)
    assert_mean(found[:, THETA], exact, sigmas=4.5)
    assert jnp.isfinite(evidence).all()
