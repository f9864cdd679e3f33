"""The gradient experiment on small numbers; finished blocks take the place of most programs, as in a resumed run."""

import csv

import jax
import numpy as np
import pytest

from mcfo.data.npz import write_npz
from mcfo.errors import OtherRunError
from mcfo.experiments import gradient_study
from mcfo.experiments.gradient_sampling import METHODS, PARAMETERS, SETTINGS, Summary, build_problems
from mcfo.experiments.gradient_study import GradientOutcomes
from mcfo.experiments.gradient_theory import analytic_score
from mcfo.experiments.outcomes import Row
from mcfo.experiments.study import run_study
from mcfo.kalman import log_evidence

SIZE = gradient_study.Preset(
    particles=(1, 10),
    costly_particles=1,
    replicates=300,
    long_particles=(10,),
    long_replicates=20,
    small_replicates=20,
    pimh_replicates=20,
)
REAL = "iwae-10"


def start(out, seed, monkeypatch):
    """A run of which all but one job is finished; the samples are noise around 100."""
    # The derivative by quadrature takes longest to compile and has a test of its own.
    monkeypatch.setattr(gradient_study, "expected_bound_gradient", lambda problem: np.zeros(len(PARAMETERS)))
    study, generator = gradient_study.Gradients(SIZE, seed), np.random.default_rng(0)
    problems = study.prepare()
    (out / "jobs").mkdir(parents=True)
    for name in study.jobs(problems):
        if name != REAL:
            few = name.startswith(("r1-", "small-", "long-"))
            replicates = SIZE.small_replicates if few else SIZE.replicates
            samples = {setting: 100 + generator.normal(size=(replicates, len(PARAMETERS))) for setting in problems}
            write_npz(out / "jobs" / f"{name}.npz", {"seconds": np.array(3.0), **samples})
    return study, problems


@pytest.mark.slow
def test_a_resumed_run_writes_what_the_contract_says(tmp_path, monkeypatch):
    out = tmp_path / "gradients"
    study, problems = start(out, 3, monkeypatch)
    draw = GradientOutcomes.figures

    def figures_of_one_setting(self, folder):
        whole, self.samples = self.samples, {about: one for about, one in self.samples.items() if about[0] == "r1"}
        figures = draw(self, folder)
        self.samples = whole
        return figures

    monkeypatch.setattr(GradientOutcomes, "figures", figures_of_one_setting)
    report = run_study(study, out, preset="tiny", command="mcfo reproduce gradients")
    assert report == out / "report.html"
    with (out / "results.csv").open(newline="") as file:
        assert next(csv.reader(file)) == list(Row._fields)
        rows = [Row(*line[:2], int(line[2]), *line[3:5], float(line[5]), line[6]) for line in csv.reader(file)]
    assert {row.setting for row in rows} == set(SETTINGS)
    assert {row.method for row in rows} == set(METHODS)
    assert {row.parameter for row in rows} == set(PARAMETERS)
    assert {row.quantity for row in rows} == {"mean", "std", "exact"}
    assert {row.particles for row in rows if row.method == "elbo"} == {1}
    assert {row.particles for row in rows if row.method == "mcfo-pimh"} == {1}, "it stops at the costly K"
    found = {row[:5]: row.value for row in rows}
    for setting, problem in problems.items():
        if setting in SETTINGS:
            score = jax.grad(log_evidence)(problem.model, problem.series)
            mean, std, exact = (found[setting, "iwae", 10, "theta_2", name] for name in ("mean", "std", "exact"))
            np.testing.assert_allclose(exact, score.emission_matrix[0, 0], rtol=1e-10)
            assert abs(mean - exact) < 0.5 * std, "at K = 10 the bias of IWAE is small"
    for name in ("mean", "std", "exact"):
        assert found["r1", "alternating", 10, "phi_1", name] == found["r1", "iwae", 10, "phi_1", name]
    assert abs(found["r1", "mcfo-smc", 10, "phi_1", "mean"] - 100) < 1
    page = report.read_text()
    assert "up to 1 particles only" in page
    assert len(list((out / "figures").glob("*.png"))) == 4
    assert sorted(entry.name for entry in out.iterdir()) == [
        "claims.csv",
        "config.json",
        "errata.csv",
        "figures",
        "report.html",
        "results.csv",
    ]


def test_another_run_is_not_resumed(tmp_path):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "config.json").write_text('{"seed": 5}')
    with pytest.raises(OtherRunError, match="seed"):
        run_study(gradient_study.Gradients(SIZE, 3), tmp_path, preset="tiny", command="")
    assert (tmp_path / "config.json").read_text() == '{"seed": 5}'


def test_verdicts_follow_the_stated_rule():
    generator = np.random.default_rng(0)
    exact = np.zeros(len(PARAMETERS))

    summary = Summary()
    for method, biases in {"right": (0, 0), "stays": (1, 1), "shrinks": (3, 0.3)}.items():
        for particles, bias in zip((10, 100), biases, strict=True):
            noise = generator.normal(size=(400, len(PARAMETERS))) / particles**0.5
            summary.add("r1", method, particles, bias + noise, exact)
    assert summary.verdict("r1", "right", "phi_1") == "no bias seen"
    assert summary.verdict("r1", "stays", "phi_1") == "biased, does not shrink"
    assert summary.verdict("r1", "shrinks", "phi_1") == "biased, shrinks"
    assert abs(summary.slope("r1", "right", "theta_1") + 0.5) < 0.05


def test_the_printed_analytic_gradient_is_wrong_and_the_corrected_one_right():
    for problem in build_problems(10, 0).values():
        exact = problem.exact()[:2]
        np.testing.assert_allclose(analytic_score(problem, as_printed=False), exact, rtol=1e-8)
        assert np.abs(analytic_score(problem, as_printed=True) - exact).max() > 1e-3
