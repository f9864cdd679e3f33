"""The learning experiment: its numbers, its files, its page; and, where there is time, its claims."""

import csv
import functools
import math
import re

import numpy as np
import pytest

from mcfo.cli.reproduce import EXPERIMENTS
from mcfo.experiments.lgssm import Lgssm, LgssmOutcomes
from mcfo.experiments.lgssm_problem import PHI, THETA, Preset, build_problem, parameters
from mcfo.experiments.outcomes import LearningRow
from mcfo.experiments.runs import Run, Runs
from mcfo.experiments.study import run_study
from mcfo.inference.evaluation import Evaluation
from support.browser import NEEDS_CHROMIUM, look_at

pytestmark = pytest.mark.xdist_group("lgssm")  # one worker makes the folder

OPTIMUM = {"theta_1": 0.9, "theta_2": 1.2, "phi_1": 0.83, "phi_2": 0.0, "phi_3": 0.006, "phi_4": 0.83, "phi_5": 0.0}


def evaluation(ess=99.0, nll=1.6):
    return Evaluation(-16.0, nll, ess, 3.0, 100, 1.2, 10, 100, 0, nll)


def learned(method="mcfo-smc", *, ess=(50.0, 96.0, 99.5), off=0.0, particles=100):
    """Two seeds that end at the same numbers."""
    near = {name: number + off for name, number in OPTIMUM.items()}
    last = {**near, "ess": ess[-1], "nll_per_step": 1.6 + off**2, "exact_nll_per_step": 1.6 + off**2, "skipped": 0.0}
    return [
        Run(
            method,
            particles,
            seed,
            [
                {"seed": seed, "step": 100 * place, "ess": value, "validation_ess": value, "grad_norm_phi": None,
                 "watched": near}
                for place, value in enumerate(ess, 1)
            ],
            {name: np.array([value]) for name, value in last.items()},
            0,
            1.5,
            details=0,
        )
        for seed in (0, 1)
    ]  # fmt: skip


@functools.cache
def small():
    return build_problem(Preset(series=3, test_series=2, watched=1, length=4, evaluation_particles=5), 0)


def outcomes(*methods):
    problem = small()._replace(optimum=OPTIMUM, ideal=evaluation(), ideal_watched=evaluation())
    return LgssmOutcomes(Preset(), problem, {"all": Runs(run for each in methods for run in each)})


def cell(method="mcfo-smc", particles=100):
    return "", method, particles


@pytest.mark.ci
def test_the_optimum_is_the_papers():
    problem = small()
    gain = 1.2 / (1.2**2 + 0.01)
    expected = (0.9, 1.2, gain, (1 - 1.2 * gain) * 0.5, (1 - 1.2 * gain) * 0.9, gain, 0.0)
    np.testing.assert_allclose([problem.optimum[name] for name in (*THETA, *PHI)], expected, rtol=1e-5)
    assert parameters(problem.model, problem.proposal)["phi_4"] == 1.0
    assert problem.test.series_id.tolist() == [3, 4], "test series have random numbers of their own"


def test_steps_to_a_share_of_the_particles():
    found = outcomes(learned())
    assert found.steps_to(cell(), 0.95) == 200
    assert found.steps_to(cell(), 0.99) == 300
    assert outcomes(learned(ess=(10.0, 20.0))).steps_to(cell(), 0.95) == math.inf
    torn = learned()
    torn[0].lines[1]["validation_ess"] = None
    assert outcomes(torn).steps_to(cell(), 0.95) == 300, "a seed without a number has not arrived"


def test_arrival_is_judged_on_every_part():
    assert outcomes(learned()).arrived(cell())
    assert not outcomes(learned(off=0.03)).arrived(cell())
    assert not outcomes(learned(ess=(94.0,))).arrived(cell())


def verdicts(*methods):
    return {claim.claim: (claim.verdict, claim.test) for claim in outcomes(*methods).claims()}


def test_claims_say_what_came_out():
    found = verdicts(learned(), learned("nasmc"), learned("mcfo-dreg", ess=(99.5,)), learned("mcfo-pimh-5"))
    assert found["mcfo-smc converges to the exact optimum"][0] == "holds"
    assert found["nasmc converges to the exact optimum"][0] == "holds"
    assert found["mcfo-dreg has 95% ESS no later than mcfo-smc"] == ("holds", "steps: 100, 200")
    assert found["nasmc has 95% ESS before mcfo-smc"][0] == "does not hold", "as many steps are no fewer"
    assert found["mcfo-pimh-5 overshoots theta_2 less than mcfo-smc"][0] == "does not hold"
    worse = verdicts(learned(), learned("nasmc", off=0.1), learned("mcfo-dreg", ess=(50.0,)), learned("iwae", off=0.1))
    assert worse["nasmc converges to the exact optimum"][0] == "does not hold"
    assert worse["mcfo-dreg has 95% ESS no later than mcfo-smc"] == ("does not hold", "steps: never, 200")
    assert worse["iwae fails to reach theta"][0] == "holds"
    several = verdicts(learned(), learned("aesmc", ess=(80.0,)), learned(particles=10, ess=(99.0,), off=0.01))
    assert several["ESS of mcfo-smc above aesmc's"][0] == "holds"
    assert several["aesmc does not reach the exact optimum"][0] == "holds"
    assert several["more particles make phi slower"][0] == "holds"
    assert several["more particles help theta marginally"][0] == "holds"
    assert verdicts(learned(), learned("aesmc"))["ESS of mcfo-smc above aesmc's"][0] == "not decided"


def test_rows_are_in_long_form():
    found = outcomes(learned())
    header, rows = found.files()["results.csv"]
    rows = [LearningRow(*row) for row in rows if row[0] == "mcfo-smc"]
    assert header == ("method", "particles", "seed", "step", "metric", "value")
    assert {row.metric for row in rows} >= {*THETA, *PHI, "ess", "test_ess"}
    assert all(row.metric != "grad_norm_phi" for row in rows), "what is not there is left out"
    assert [(row.step, row.seed) for row in rows if row.metric == "ess"] == [
        (100 * k, s) for k in (1, 2, 3) for s in (0, 1)
    ]
    summary = {row.metric: row for row in found.summary_rows() if row.method == "mcfo-smc"}
    assert found.files()["summary.csv"][0] == ("method", "particles", "metric", "mean", "std", "seeds")
    assert summary["ess"].mean == 99.5
    assert summary["steps_to_ess_0.95"].mean == 200


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A whole experiment of the smallest size."""
    out = tmp_path_factory.mktemp("experiment")
    size = Preset(
        particles=(5, 8), sweeps=(1,), pimh_particles=5, evaluation_particles=5, seeds=(0, 1), steps=40, batch=2,
        series=6, test_series=4, watched=2, length=3,
    )  # fmt: skip
    run_study(Lgssm(size), out, preset="quick", command="mcfo reproduce lgssm")
    return out


@pytest.mark.slow
def test_the_experiment_writes_its_folder(folder):
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    pictures = {f"figures/{name}.png" for name in ("learning", "parameters", "particles", "pimh")}
    assert found == {"results.csv", "summary.csv", "claims.csv", "config.json", "report.html", *pictures}
    with (folder / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["method"] for row in rows} == {
        "bootstrap", "iwae", "aesmc", "nasmc", "mcfo-smc", "mcfo-dreg", "mcfo-fisher", "mcfo-pimh-1",
        "exact",
    }  # fmt: skip
    averaged = [row for row in rows if row["metric"] == "averaged_ess" and row["method"] == "nasmc"]
    assert [(row["seed"], row["step"]) for row in averaged] == [("0", "40"), ("1", "40")] * 2
    with (folder / "summary.csv").open() as file:
        summary = list(csv.DictReader(file))
    assert summary[0].keys() == {"method", "particles", "metric", "mean", "std", "seeds"}
    assert any(row["method"] == "exact" and row["metric"] == "theta_2" for row in summary)
    page = (folder / "report.html").read_text()
    assert len(re.findall("<img", page)) == 4
    assert "mcfo-pimh-1" in page


@pytest.mark.slow
@NEEDS_CHROMIUM
def test_its_page_is_seen_in_a_browser(folder, tmp_path):
    measured, console = look_at((folder / "report.html").read_text(), tmp_path)
    assert console == []
    for found in measured:
        assert len(found["images"]) == 4
        assert all(image["natural"] >= 1000 and image["height"] > 80 for image in found["images"])
        assert found["wide"] == []
        assert found["requests"] == []


def test_presets():
    assert EXPERIMENTS["lgssm"].endswith("experiments.lgssm")
    assert Lgssm.presets["quick"].particles == (100,)
    assert len(Lgssm.presets["quick"].seeds) == 3
    assert Lgssm.presets["paper"].particles == (10, 100, 1000)
