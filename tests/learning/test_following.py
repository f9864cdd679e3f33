"""A proposal whose optimum is known follows the model; estimated likelihoods carry their error; bad ends are said."""

import dataclasses

import equinox as eqx
import jax
import numpy as np
import pytest

import mcfo
from mcfo import Series, objectives
from mcfo.proposals import LocallyOptimal

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def trend():
    generator = np.random.default_rng(3)
    slope = np.cumsum(generator.normal(size=60) * 0.1)
    return Series.from_values(np.cumsum(slope + generator.normal(size=60) * 0.5) + generator.normal(size=60))


@pytest.fixture(scope="module")
def fitted(trend):
    start = mcfo.initialize("local-trend", [trend])
    objective = objectives.mcfo(30, theta="fisher", phi="dreg")
    return mcfo.fit(
        start.model, start.proposal, [trend], objective=objective, fixed=start.fixed, steps=60, seeds=(0, 1)
    )


def test_the_proposal_is_optimal_for_the_learned_model(fitted):
    for one in fitted.seeds:
        assert isinstance(one.proposal, LocallyOptimal)
        assert eqx.tree_equal(one.proposal.model, one.model, rtol=1e-12)


def test_nothing_of_it_is_learned_and_the_filter_stays_good(fitted, trend):
    assert all(line["grad_norm_phi"] is None for line in fitted.metrics)
    assert fitted.evaluation.ess > 0.7 * fitted.evaluation.particles
    # The control: the proposal that was optimal at the start is no longer.
    start = mcfo.initialize("local-trend", [trend])
    moved = eqx.tree_at(
        lambda m: m.transition_noise.log_diagonal, fitted.model, start.model.transition_noise.log_diagonal + 2
    )
    key = jax.random.key(0)
    stale = mcfo.evaluate(moved, start.proposal, trend, particles=1000, key=key)
    own = mcfo.evaluate(moved, LocallyOptimal(moved), trend, particles=1000, key=key)
    assert stale.ess < 0.8 * own.ess


def test_a_repeated_likelihood_is_near_the_exact_one_in_its_standard_errors(fitted, trend):
    exact = mcfo.evaluate(fitted.model, fitted.proposal, trend).log_evidence
    scores = []
    for seed in range(12):
        key = jax.random.key(seed)
        one = mcfo.evaluate(fitted.model, fitted.proposal, trend, particles=200, repeats=8, key=key)
        scores.append((one.log_evidence - exact) / one.log_evidence_error)
    # The error is itself estimated from eight runs: Student's t with seven degrees of freedom.
    assert np.mean(np.square(scores)) == pytest.approx(1.4, abs=1.4)
    assert abs(np.mean(scores)) * 12**0.5 < 5 * np.std(scores, ddof=1)
    assert mcfo.evaluate(fitted.model, fitted.proposal, trend, particles=200).log_evidence_error is None


def _with(fitted, **changes):
    seeds = tuple(dataclasses.replace(one, evaluation=one.evaluation._replace(**changes)) for one in fitted.seeds)
    return dataclasses.replace(fitted, seeds=seeds)


def test_a_low_effective_sample_size_is_said(fitted):
    assert fitted.warnings == []
    assert "mean ESS of 2.6 of 1000" in _with(fitted, ess=2.6).warnings[0]


def test_an_end_below_the_best_is_said(fitted):
    lines = sorted(fitted.metrics * 6, key=lambda line: line["step"])

    def going(sign):
        metrics = tuple({**line, "log_evidence_per_step": sign * line["step"] / 10} for line in lines)
        return dataclasses.replace(fitted, metrics=metrics)

    assert "lower bound than it had before" in going(-1).warnings[0]
    assert going(1).warnings == []
