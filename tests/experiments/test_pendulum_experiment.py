"""The experiment on videos: what predictions are, what the tables average, its folder and its page."""

import csv
import functools
import math
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from mcfo import Series, kalman_filter, stack
from mcfo.data.pendulum_videos import View, angles_of, expected_angles
from mcfo.experiments import pendulum, pendulum_problem
from mcfo.experiments.outcomes import Outcome, compared, welch
from mcfo.experiments.pendulum import Pendulum, PendulumOutcomes, draw_latents, late_evaluations
from mcfo.experiments.pendulum_problem import (
    FIRST_RATE,
    METHODS,
    PRESETS,
    Preset,
    build_problem,
    follow,
    follow_all,
    motion_foreseen,
    scores,
)  # fmt: skip
from mcfo.experiments.runs import Run, Runs, cost, draw_learning
from mcfo.experiments.study import run_study
from mcfo.learning.optimizers import SCHEDULES
from mcfo.models import DeepMarkov, LinearGaussian
from mcfo.proposals import Amortized, Bootstrap
from support.browser import NEEDS_CHROMIUM, look_at

pytestmark = pytest.mark.xdist_group("pendulum")  # one worker makes the folder


def linear_model():
    """A deep model without hidden layers, and the same as a linear Gaussian one."""
    model = DeepMarkov(
        2, key=jax.random.key(0), latent=2, transition=(), emission=(), persistent=False, kind="gaussian", scale=1.0
    )
    layer = model.transition_network.layers[0]
    weight = layer.weight.at[2:].set(0.0).at[:2].set(jnp.array([[0.9, 0.1], [0.0, 0.7]]))
    model = eqx.tree_at(lambda m: m.transition_network.layers[0].weight, model, weight)
    emission = model.emission_network.layers[0]
    exact = LinearGaussian(
        initial_mean=jnp.zeros(2),
        initial_noise=model.initial(None, None).variance,
        transition_matrix=weight[:2],
        transition_offset=layer.bias[:2],
        transition_noise=model.transition(jnp.zeros(2), None).variance,
        emission_matrix=emission.weight,
        emission_offset=emission.bias,
        emission_noise=jnp.ones(2),
    )
    return model, exact


@pytest.mark.parametrize("preset", PRESETS)
def test_rates_fall_from_the_papers_first_to_its_last(preset):
    size = PRESETS[preset]
    options = pendulum_problem.SCHEDULES[size.schedule](size.last_rate)
    rates = SCHEDULES[size.schedule](FIRST_RATE, size.steps, **options)
    assert rates(0) == pytest.approx(1e-2)
    assert rates(size.steps) == pytest.approx(1e-4)
    assert rates(2 * size.steps) == pytest.approx(1e-4)
    if preset == "paper":
        assert rates(10) / rates(0) == pytest.approx(0.998, abs=1e-5)


@pytest.mark.ci
def test_predictions_are_those_of_the_kalman_filter():
    """Both of them: where everything is linear the picture at the mean is the mean of the pictures."""
    model, linear = linear_model()
    video = Series.from_values(np.random.default_rng(0).normal(size=(6, 2)))
    found = eqx.filter_jit(lambda key: follow(model, Bootstrap(), video, particles=20_000, draws=20_000, key=key))(
        jax.random.key(2)
    )
    exact = kalman_filter(linear, video)
    predicted = exact.filtered.mean[:-1] @ linear.transition_matrix.T + linear.transition_offset
    pictures = predicted @ linear.emission_matrix.T + linear.emission_offset
    np.testing.assert_allclose(found.at_mean, pictures, atol=0.03)
    np.testing.assert_allclose(found.mean, pictures, atol=0.03)
    np.testing.assert_allclose(found.filtered.mean(1), exact.filtered.mean, atol=0.06)
    np.testing.assert_allclose(found.predicted.mean(1), predicted, atol=0.06)
    # Negative control: the prediction of the frame before.
    assert np.abs(found.at_mean[:-1] - pictures[1:]).max() > 0.1


@pytest.mark.ci
def test_errors_are_sums_of_norms_over_the_later_frames():
    model, _ = linear_model()
    proposal = Amortized(2, 2, key=jax.random.key(1), encoder=(4,), hidden=(4,))
    values = np.random.default_rng(1).normal(size=(3, 5, 2))
    videos = stack([Series.from_values(one, series_id=number) for number, one in enumerate(values)])
    key, particles = jax.random.key(3), 50
    found = eqx.filter_jit(lambda: scores(model, proposal, videos, jnp.asarray(values), particles=particles, key=key))()
    alone = eqx.filter_jit(lambda video: follow(model, proposal, video, particles=particles, key=key))
    one_by_one = [alone(Series.from_values(one, series_id=number)) for number, one in enumerate(values)]
    for metric, pictures in (("prediction", "at_mean"), ("prediction_by_mean", "mean")):
        distances = [
            np.linalg.norm(np.asarray(getattr(way, pictures)) - gray[1:], axis=1).sum()
            for way, gray in zip(one_by_one, values, strict=True)
        ]
        assert float(found[metric]) == pytest.approx(np.mean(distances), rel=1e-9)
    evidences = [float(way.record.log_evidence.sum()) for way in one_by_one]
    assert float(found["nll"]) == pytest.approx(-np.mean(evidences), rel=1e-9)
    assert 1 <= float(found["ess_at_test"]) <= particles


def test_baselines():
    problem = build_problem(Preset(series=4, test_series=3, evaluated=2, length=5), 1)
    gray = np.asarray(problem.gray)
    assert problem.test.observations.shape == gray.shape == (2, 5, 1024)
    found = problem.baselines()
    wanted = np.mean(
        [sum(np.linalg.norm(gray[video, t] - gray[video, t - 1]) for t in range(1, 5)) for video in range(2)]
    )
    assert found["persistence"] == pytest.approx(wanted, rel=1e-5)
    assert found["static"] > found["persistence"] > found["true state"] > found["true state, mean"] > 0
    draws = expected_angles(problem.angles, problem.speeds)[:, :-1] + 0.1 * np.random.default_rng(0).normal(
        size=(3000, 2, 4)
    )
    mean = np.mean([View()(angles).reshape(2, 4, -1) / 255 for angles in draws], axis=0)
    wanted = np.linalg.norm(gray[:, 1:] - mean, axis=-1).sum(-1).mean()
    assert found["true state, mean"] == pytest.approx(wanted, rel=0.02)
    seen = np.asarray(problem.test.observations, float)
    wanted = np.mean([np.linalg.norm(gray[video, 1:] - seen[video, :-1], axis=1).sum() for video in range(2)])
    assert found["last observed"] == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.0, -1.0])
def test_motion_is_the_share_of_it_that_pictures_foresee(share):
    problem = build_problem(Preset(series=1, test_series=3, evaluated=3, length=8), 2)
    turned = problem.angles + share * (expected_angles(problem.angles, problem.speeds) - problem.angles)
    pictures = View()(turned[:, :-1]).reshape(3, 7, -1) / 255
    blurred = 0.8 * pictures + 0.1
    for shown in (pictures, blurred):
        assert motion_foreseen(shown, problem.angles, problem.speeds) == pytest.approx(share, abs=0.02)
    frames = np.asarray(problem.gray)
    np.testing.assert_allclose(np.exp(1j * angles_of(frames)), np.exp(1j * problem.angles), atol=2e-3)


@functools.cache
def followed():
    """One short video, which the linear model follows."""
    videos = stack([Series.from_values(np.zeros((3, 2)))])
    return follow_all(linear_model()[0], Bootstrap(), videos, particles=2, key=jax.random.key(0))


BASELINES = {"static": 107.0, "last observed": 92.0, "persistence": 74.0, "true state": 57.0, "true state, mean": 51.0}


def learned(method="mcfo-smc", seed=0, particles=10, prediction=50.0, ess=100.0, motion=0.5, last=0.3):
    lines = [
        {
            "seed": seed, "step": step, "log_evidence_per_step": -30.0, "ess": 5.0, "grad_norm_theta": 1.0,
            "grad_norm_phi": None,
            **({"watched": {"prediction": prediction and prediction + 100 / step, "prediction_by_mean": prediction,
                            "nll": 600.0, "ess_at_test": ess}} if step % 20 == 0 else {}),
        }
        for step in range(10, 101, 10)
    ]  # fmt: skip
    numbers = {name: np.array(values) for name, values in late_evaluations(lines, last).items()}
    numbers["motion"] = np.array([motion])
    return Run(method, particles, seed, lines, numbers, 0, 60.0, details=followed())


@functools.cache
def problem():
    return build_problem(Preset(series=1, test_series=1, evaluated=1, length=3), 0)


def outcomes(*runs):
    found = PendulumOutcomes(PRESETS["quick"], problem(), {"all": Runs(runs)})
    found.baselines = BASELINES
    return found


def cell(method="mcfo-smc", particles=10):
    return "", method, particles


@pytest.mark.ci
def test_tables_average_over_the_last_part_and_the_seeds():
    found = outcomes(learned(seed=0, last=0.4), learned(seed=1, prediction=52.0, last=0.4))
    prediction = found.of(cell(), "prediction")
    late = [50 + 100 / 80, 50 + 100 / 100, 52 + 100 / 80, 52 + 100 / 100]
    np.testing.assert_allclose(prediction.values, late)
    assert prediction.mean == pytest.approx(np.mean(late))
    assert prediction.spread == pytest.approx(np.std(late, ddof=1))
    summary = {row.metric: row for row in found.summary_rows() if row.method == "mcfo-smc"}
    assert (summary["ess_at_test"].mean, summary["prediction"].seeds) == (100.0, 2)
    assert summary["motion"].mean == 0.5
    assert math.isnan(found.of(cell("aesmc"), "prediction").mean)
    assert found.files()["results.csv"][0] == ("method", "particles", "seed", "step", "metric", "value")
    rows = [row for row in found.rows() if row.method == "mcfo-smc"]
    assert {row.metric for row in rows} >= {"prediction", "nll", "ess_at_test", "log_evidence_per_step"}
    assert all(row.metric != "grad_norm_phi" for row in rows), "what is not there is left out"


def claims(*runs):
    return {(claim.claim, claim.setting): claim for claim in outcomes(*runs).claims()}


def seeds(*arguments, **options):
    """Two seeds, almost alike."""
    prediction = options.pop("prediction", 50.0)
    return [learned(*arguments, seed=seed, prediction=prediction + 0.01 * seed, **options) for seed in (0, 1)]


def test_claims_follow_the_numbers():
    found = claims(*seeds(), *seeds("aesmc", prediction=60.0, ess=80.0), *seeds("nasmc", prediction=90.0))
    error = found["prediction error of mcfo-smc below aesmc's", "K = 10"]
    assert error.ours == pytest.approx(-10.0)
    assert error.paper == pytest.approx(47.54 - 65.53)
    assert error.verdict == "holds"
    ess = found["ESS of mcfo-smc above aesmc's", "K = 10"]
    assert (ess.ours, ess.paper, ess.verdict) == (20.0, 21.0, "holds")
    assert found["nasmc fails to converge", "K = 10"].verdict == "holds"
    best = found["the best method predicts better than persistence", "mean latent, mcfo-smc, K = 10"]
    assert best.verdict == "holds"
    assert found["the worst method predicts better than persistence", "mean latent, nasmc, K = 10"].verdict == (
        "does not hold"
    )
    turned = claims(*seeds(prediction=60.0, ess=80.0), *seeds("aesmc"))
    assert turned["prediction error of mcfo-smc below aesmc's", "K = 10"].verdict == "does not hold"
    assert turned["ESS of mcfo-smc above aesmc's", "K = 10"].verdict == "does not hold"
    alike = claims(*seeds(ess=80.0), *seeds("aesmc", ess=80.0))
    assert alike["ESS of mcfo-smc above aesmc's", "K = 10"].verdict == "not decided"


def test_one_seed_decides_nothing():
    found = claims(learned(), learned("aesmc", prediction=60.0, ess=80.0))
    error = found["prediction error of mcfo-smc below aesmc's", "K = 10"]
    assert (error.verdict, error.test) == ("not decided", "none with 1 and 1 seeds")
    nothing = claims(learned(prediction=None), learned("aesmc"))
    error = nothing["prediction error of mcfo-smc below aesmc's", "K = 10"]
    assert (error.verdict, error.test) == ("not decided", "nothing finite to compare")
    assert ("the best method predicts better than persistence", "predictive mean, aesmc, K = 10") in nothing


def test_a_run_that_came_to_nothing_failed():
    some = claims(learned("nasmc"), learned("nasmc", seed=1, prediction=90.0))
    assert some["nasmc fails to converge", "K = 10"].verdict == "not decided", "it fails with some seeds"
    assert claims(learned("nasmc"))["nasmc fails to converge", "K = 10"].verdict == "does not hold"
    failed = claims(learned("nasmc", prediction=90.0), learned("nasmc", seed=1, prediction=None))
    claim = failed["nasmc fails to converge", "K = 10"]
    assert claim.test == "0 of 2 seeds below persistence, 74.0"
    assert claim.verdict == "holds"


def test_claims_of_a_larger_k_and_of_our_own_methods():
    larger = [
        *seeds(particles=20, ess=90.0),
        *seeds("aesmc", particles=20, ess=200.0),
        *seeds("mcfo-dreg", particles=20),
    ]
    found = claims(*seeds(), *seeds("aesmc", ess=80.0), *seeds("mcfo-dreg", ess=150.0), *larger)
    assert found["ESS of mcfo-dreg above aesmc's", "K = 10"].verdict == "holds"
    assert found["ESS of mcfo-dreg above aesmc's", "K = 20"].verdict == "does not hold"
    falls = found["a larger K lowers the ESS of mcfo-smc", "K = 10 to 20"]
    assert (falls.ours, falls.paper, falls.verdict) == (-10.0, -8.0, "holds")
    assert found["a larger K lowers the ESS of aesmc", "K = 10 to 20"].verdict == "does not hold"
    repaired = found["mcfo-dreg repairs what a larger K does to the ESS", "K = 10 to 20"]
    assert repaired.verdict == "not decided"
    assert repaired.test == "change of the ESS: aesmc +150%, mcfo-dreg -33%, no loss"
    assert not any("mcfo-lag" in claim for claim, _ in found)
    lagged = claims(*seeds(), *seeds("aesmc"), *seeds("mcfo-lag", prediction=44.0, ess=170.0, motion=0.9))
    assert lagged["prediction error of mcfo-lag below mcfo-smc's", "K = 10"].verdict == "holds"
    motion = lagged["share of the motion foreseen of mcfo-lag above mcfo-smc's", "K = 10"]
    assert (motion.ours, motion.verdict) == (pytest.approx(0.4), "holds")
    table = outcomes(*seeds(), *seeds("mcfo-lag", motion=0.9)).method_table("")
    assert [row[table.header.index("motion")][:4] for row in table.rows[:2]] == ["0.50", "0.90"]


@pytest.mark.parametrize(("one", "other"), [([1.0, 2.0], [4.0, 4.5]), ([1.0, 1.1, 1.2], [3.0, 3.3])])
def test_differences_are_decided_by_welchs_test(one, other):
    def outcome(values):
        return Outcome.of_seeds(np.array([value]) for value in values)

    wanted = stats.ttest_ind(one, other, equal_var=False).pvalue
    assert welch(outcome(one), outcome(other)) == pytest.approx(wanted)
    above = compared("", outcome(one), outcome(other)).verdict
    assert above == ("does not hold" if wanted < 0.05 else "not decided")
    below = compared("", outcome(one), outcome(other), wanted=-1).verdict
    assert below == ("holds" if wanted < 0.05 else "not decided")
    assert welch(outcome([1.0, 1.0]), outcome([1.0, 1.0])) == 1.0
    assert welch(outcome([1.0, 1.0]), outcome([2.0, 2.0])) == 0.0
    assert math.isnan(welch(outcome([1.0]), outcome([2.0, 2.0])))


@pytest.mark.ci
def test_a_filter_that_fails_has_no_ess():
    """Its weights are then equal, which would be the largest there is."""
    model, _ = linear_model()
    values = np.full((1, 3, 2), 1e200)
    videos = stack([Series.from_values(values[0])])
    found = scores(model, Bootstrap(), videos, jnp.asarray(values), particles=5, key=jax.random.key(0))
    assert float(found["ess_at_test"]) == 0.0
    assert not np.isfinite(found["nll"])


@pytest.mark.parametrize("latent", [1, 2, 3])
def test_latents_are_drawn_without_their_traces(latent, tmp_path):
    problem = build_problem(Preset(series=1, test_series=2, evaluated=2, length=4), 0)
    latents = jax.random.normal(jax.random.key(0), (2, 4, 5, latent + 1))
    found = eqx.tree_at(lambda one: (one.filtered, one.predicted), followed(), (latents, latents[:, 1:]))
    assert draw_latents(tmp_path / "latents.png", problem, {"aesmc": found}, latent).stat().st_size > 10_000


def test_an_evaluation_that_was_not_finite_has_no_point(tmp_path):
    broken = learned(seed=1)
    broken.lines[3]["watched"]["prediction"] = None
    runs = [learned(), broken, learned("aesmc", prediction=None)]
    levels = {("", "prediction"): BASELINES}
    path, caption = draw_learning(tmp_path / "curves.png", runs, {"prediction": "error"}, levels, "what it shows")
    assert path.stat().st_size > 10_000
    assert caption == "what it shows"


def test_every_method_has_a_cost():
    study = Pendulum(PRESETS["quick"])
    assert list(study.jobs(problem())) == [f"{method}-10-0" for method in study.size.methods]
    assert cost(METHODS["mcfo-pimh"](10)) > cost(METHODS["mcfo-smc"](10)) == cost(METHODS["aesmc"](10))
    assert cost(METHODS["mcfo-smc"](100)) == 3 * 110


TINY = {"emission_units": "6", "encoder_units": "6,4"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A whole experiment of the smallest size, with small networks."""
    out = tmp_path_factory.mktemp("experiment")
    size = Preset(
        methods=("nasmc", "mcfo-lag"), particles=(2,), seeds=(0, 1), steps=20, batch=2, series=4, test_series=3,
        length=4, evaluated=2, evaluation_particles=6, evaluations=2, last=0.6,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        build = pendulum.build
        patch.setattr(pendulum, "build", lambda name, series, options: build(name, series, {**TINY, **options}))
        run_study(Pendulum(size), out, preset="quick", command="mcfo reproduce pendulum")
    return out


@pytest.mark.slow
def test_the_experiment_writes_its_folder(folder):
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    pictures = {f"figures/{name}.png" for name in ("curves", "frames", "latents")}
    assert found == {"results.csv", "summary.csv", "claims.csv", "config.json", "report.html", *pictures}
    with (folder / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["method"] for row in rows} == {
        "nasmc",
        "mcfo-lag",
        "static",
        "last observed",
        "persistence",
        "true state",
        "true state, mean",
    }
    evaluated = [row for row in rows if row["metric"] == "prediction" and row["method"] == "nasmc"]
    assert [(row["particles"], row["seed"], row["step"]) for row in evaluated] == [
        ("2", seed, step) for seed in "01" for step in ("10", "20")
    ]
    page = (folder / "report.html").read_text()
    assert len(re.findall("<img", page)) == 3
    assert "mcfo-lag" in page


@pytest.mark.slow
@NEEDS_CHROMIUM
def test_its_page_is_seen_in_a_browser(folder, tmp_path):
    _, console = look_at((folder / "report.html").read_text(), tmp_path)
    assert console == []
