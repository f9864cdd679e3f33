"""Learning by particles ends when nothing improves, says why, and says if the end is worse than what came before."""

import json

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import mcfo
from mcfo import Series, objectives
from mcfo.learning.looks import GAIN, LOG_LIKELIHOODS, Gains, Look, averaged_from, clear_loss, is_settled, look_steps
from mcfo.learning.progress import Silent
from mcfo.learning.results import results_data
from mcfo.learning.run_folder import read_metrics
from mcfo.learning.settings import Settings
from mcfo.learning.step import PARTS, Looking
from support.learning import same_metrics


def test_looks_double_and_each_averages_the_half_before_it():
    assert look_steps(Settings()) == (120, 250, 500, 1000)
    assert averaged_from(Settings(), look_steps(Settings())) == (60, 120, 250, 500, 1000, 1800)
    # Runs that are short, or that shall make all their updates, are not looked at.
    assert look_steps(Settings(steps=200)) == look_steps(Settings(tolerance=0)) == ()
    assert averaged_from(Settings(tolerance=0), ()) == (1800,)
    assert all(step % 250 == 0 for step in look_steps(Settings(log_every=250)))


def climb(limit, noise, *, seed=0):
    """The gain between two averages on the way up -(θ - 1)² / 2 · 40, θ from 0 to the limit in 200 updates, from
    gradients with noise, of the loss of one of four series."""
    generator = np.random.default_rng(seed)
    gains, states = Gains((100, 200), (0, 100, 200), 4), []
    path = limit * (1 - np.exp(-np.arange(200) / 30))
    looking = Looking(jnp.zeros((1, PARTS, 1)), jnp.zeros((1, PARTS, 1)), jnp.zeros((1, 1)))
    found = None
    for since in (0, 100):
        own = path[since : since + 100]
        gradients = -(40 / 4) * (1 - own) + noise * generator.normal(size=100) / 4
        parts = np.arange(100) * PARTS // 100
        sums = jnp.asarray(np.bincount(parts, weights=gradients, minlength=PARTS)[None, :, None])
        looking = eqx.tree_at(lambda one: one.gradients, looking, sums)
        states.append(own.mean())
        looking, found = gains.look(looking, np.array([[own.mean()]]), since + 100)
    truth = -20 * (1 - states[1]) ** 2 + 20 * (1 - states[0]) ** 2
    return found[0], truth


def test_the_gain_is_that_of_the_likelihood_and_its_error_that_of_the_noise():
    """For a quadratic log-likelihood the rule is exact, and parts of the updates say how far noise takes it off."""
    (gain, _), truth = climb(0.5, 0.0)
    np.testing.assert_allclose(gain, truth, rtol=1e-6)
    assert truth > 1
    found = [climb(0.5, 5.0, seed=seed) for seed in range(200)]
    scores = np.array([(gain - truth) / error for (gain, error), truth in found])
    # The drift of the gradient within each half counts as noise, so that errors are rather too large.
    assert 0.05 < scores.std() < 1.2
    assert abs(scores.mean()) < 5 * scores.std() / np.sqrt(len(scores))


def lines(*gains, seeds=(0,)):
    rows = []
    for number, gain in enumerate(gains, 1):
        own = {LOG_LIKELIHOODS: [0.0, 0.1], GAIN: gain}
        rows += [{"seed": seed, "step": 100 * number, **own} for seed in seeds]
    return rows


def test_a_run_is_over_where_every_seed_gains_less_than_the_tolerance():
    settings = Settings(tolerance=0.1)
    assert not is_settled(settings, [])
    assert not is_settled(settings, lines(None))
    assert is_settled(settings, lines(None, [0.01, 0.01]))
    assert is_settled(settings, lines(None, [-3.0, 0.01]))
    # Too much gain, too much noise, or nothing that is known.
    assert not is_settled(settings, lines(None, [0.2, 0.01]))
    assert not is_settled(settings, lines(None, [0.01, 0.1]))
    assert not is_settled(settings, lines(None, None))
    both = lines(None, [0.01, 0.01], seeds=(0, 1))
    assert is_settled(settings, both)
    assert not is_settled(settings, [*both[:-1], {**both[-1], GAIN: [0.5, 0.01]}])
    # An earlier rest does not count.
    assert not is_settled(settings, lines(None, [0.01, 0.01], [0.3, 0.01]))


def test_a_loss_is_said_where_it_is_no_chance():
    start, middle = Look(0, (-10.0, -10.2, -9.9, -10.1)), Look(100, (-5.0, -5.3, -4.9, -5.1))

    def end(value):
        return Look(200, tuple(value + one for one in (0.0, -0.2, 0.1, 0.0)))

    assert clear_loss([start, middle, end(-5.0)], 0.1) is None
    best, loss = clear_loss([start, middle, end(-8.0)], 0.1)
    assert best.step == 100
    assert abs(loss - 2.95) < 0.2
    best, _ = clear_loss([start, end(-12.0)], 0.1)
    assert best.step == 0
    # Within the noise of a few filters nothing is said.
    noisy = Look(200, (-3.0, -9.0, -2.0, -8.0))
    assert clear_loss([middle, noisy], 0.1) is None


class Stop(Exception):
    pass


class StopAfter(Silent):
    def __init__(self, step):
        self.step = step

    def update(self, lines):
        if lines[0]["step"] >= self.step:
            raise Stop


def counts():
    return Series.from_values(np.random.default_rng(0).poisson(4.0, size=15))


def learn(**settings):
    series = counts()
    begun = mcfo.initialize("poisson-counts", series)
    options = {"objective": objectives.bootstrap(20, theta="fisher"), "steps": 1600, "tolerance": 0.3} | settings
    return mcfo.fit(begun.model, begun.proposal, [series], **options)


@pytest.mark.ci
def test_a_fit_ends_before_its_limit_and_resumes_to_the_bit(tmp_path):
    whole = learn()
    assert whole.stopped == "converged"
    assert whole.steps in look_steps(whole.settings)
    assert whole.selected == "average"
    assert f"Stopped after {whole.steps} of at most 1600 updates" in whole.reason
    results = results_data(whole)
    assert (results["stopped"], results["reason"]) == ("converged", whole.reason)
    looks = results["seeds"][0]["looks"]
    assert [one["step"] for one in looks] == [
        0,
        *[n for n in look_steps(whole.settings) if n <= whole.steps],
        whole.steps,
    ]
    assert not whole.warnings
    # Interrupted between two looks and resumed, it ends with the same numbers.
    with pytest.raises(Stop):
        learn(out=tmp_path / "run", checkpoint_seconds=0.0, listener=StopAfter(150))
    resumed = learn(out=tmp_path / "run", resume=True)
    assert (resumed.stopped, resumed.steps) == (whole.stopped, whole.steps)
    assert same_metrics(resumed.metrics, whole.metrics)
    assert same_metrics(read_metrics(tmp_path / "run"), whole.metrics)
    for name, array in whole.arrays().items():
        assert (array == resumed.arrays()[name]).all(), name
    assert json.loads((tmp_path / "run" / "results.json").read_text())["reason"] == whole.reason
    # The control: the first updates gain more than that, and a fixed number of them is made where it is asked for.
    fixed = learn(tolerance=0, steps=240)
    assert (fixed.stopped, fixed.steps, fixed.reason) == ("finished", 240, None)
    assert not any(LOG_LIKELIHOODS in line for line in fixed.metrics)


@pytest.mark.ci
def test_an_end_below_the_start_is_said():
    ruined = learn(steps=30, learning_rate=0.7, select="last")
    assert any("below what it had at its start" in text for text in ruined.warnings), ruined.warnings
    assert results_data(ruined)["warnings"] == ruined.warnings
    assert not any("below what it had" in text for text in learn(steps=30, learning_rate=0.02).warnings)
