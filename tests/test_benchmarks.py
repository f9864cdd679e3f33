"""The benchmark suite's machinery: statistics, workers that crash, tables and targets. Nothing here is timed."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from suite import measuring, startup, statistics, tables, workloads
from suite.contenders import CONTENDERS, OURS, contenders_of
from suite.environments import PEERS
from suite.figure import draw
from suite.growth import along_steps, curve
from suite.targets import targets
from suite.workers import Crashed, Worker, without_folders

ROWS = [*workloads.rows(quick=False), *(one for axis in workloads.AXES for one in workloads.growth(axis, quick=False))]
EFFORT = measuring.Effort(repeats=3, seconds=60.0, least=1, patience=300.0)

FAKE = """
import sys, time
sys.path.insert(0, sys.argv[1])
from serving import Prepared, serve

def prepare(workload):
    print("libraries talk")
    how = sys.argv[2]
    if how == "refuses":
        raise ValueError("no such thing in /some/folder/library.py")
    def call(seed):
        if how == "dies" and seed > 1:
            sys.exit("out of luck")
        if how == "fails" and seed > 2:
            raise RuntimeError("too many particles")
        if how == "hangs" and seed:
            time.sleep(60)
        return {"log_evidence": -10.0 + 0.1 * (-1) ** seed}
    return Prepared(call, 1000)

serve(prepare, "numpy")
"""


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    script = tmp_path_factory.mktemp("fake") / "worker.py"
    script.write_text(FAKE)
    return lambda how: Worker([sys.executable, str(script), str(PEERS), how], timeout=300.0)


def test_medians_and_quartiles():
    assert statistics.summary([3.0, 1.0, 2.0, 5.0, 4.0]) == {"median": 3.0, "low": 2.0, "high": 4.0, "repeats": 5}


def test_the_exponent_is_that_of_the_upper_part():
    """A constant cost hides the exponent of small sizes; those are not fitted."""
    sizes = np.array([1.0, 10.0, 1e4, 1e5, 1e6])
    assert statistics.exponent(sizes, 3e-7 * sizes**1.04 + 1e-6) == pytest.approx(1.04, abs=1e-3)
    assert statistics.exponent(sizes, 3e-7 * sizes**1.04 + 1e-6, upper=5) < 1.0
    assert statistics.exponent(sizes[::-1], sizes[::-1] ** 2) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="two sizes"):
        statistics.exponent([1.0], [1.0])


def test_a_contender_that_computes_something_else_is_found():
    """Log-evidences of the right law agree, 5 standard errors; shifted ones, and those of no resampling, do not."""
    random = np.random.default_rng(0)
    exact, deviation = -1880.0, 2.0
    groups = [exact - deviation**2 / 2 + deviation * random.normal(size=12) for _ in range(3)]
    wrong = groups[0] - 12 * deviation
    collapsed = -5800 + 200 * random.normal(size=12)
    of_one = statistics.spread([*groups, wrong, collapsed])
    assert of_one.variance == pytest.approx(deviation**2, rel=0.5)
    assert all(statistics.truth_gap(group, exact, of_one)["agrees"] for group in groups)
    assert not statistics.truth_gap(wrong, exact, of_one)["agrees"]
    assert not statistics.truth_gap(collapsed, exact, of_one)["agrees"]
    assert statistics.truth_gap([exact], exact, statistics.spread([[exact]]))["agrees"] is None


def test_gradients_are_compared_in_the_mean():
    random = np.random.default_rng(0)
    ours, theirs = random.normal(size=(2, 50))
    assert statistics.mean_gap(ours, theirs)["agrees"]
    assert not statistics.mean_gap(ours, theirs + 2)["agrees"]
    assert statistics.mean_gap(ours, theirs[:3])["agrees"] is None


def test_the_exact_evidence_is_that_of_our_kalman_filter():
    from serving import COEFFICIENT, exact_log_evidence, observations

    import mcfo

    values = observations(3, 20)
    model = mcfo.models.LinearGaussian.scalar(COEFFICIENT, 1.0, initial_mean=0.0)
    series = [mcfo.Series.from_values(np.float64(row)[:, None]) for row in values]
    ours = sum(float(mcfo.kalman_filter(model, one).log_evidence) for one in series)
    assert exact_log_evidence(values) == pytest.approx(ours, rel=1e-9)


def test_workloads_are_consistent():
    names = [one.name for one in ROWS]
    assert len(set(names)) == len(names)
    short = workloads.rows(quick=True)
    assert set(short) < set(ROWS)
    assert {one.group for one in short} == {"filtering", "schemes", "learning", "networks"}
    for one in ROWS:
        assert json.loads(json.dumps(one.as_request())) == one.as_request()
        assert (one.sweeps is not None) == (one.objective == "mcfo-pimh")
        assert contenders_of(one)[0].name == OURS
    assert sum(map(len, workloads.together(ROWS))) == len(ROWS)
    for group in workloads.together(workloads.learning()):
        assert {one.objective for one in group} == set(workloads.OBJECTIVES)


def test_every_contender_has_its_script_and_pinned_requirements():
    for one in CONTENDERS:
        assert (PEERS / one.script).is_file()
        assert any(one.can(row) for row in ROWS)
        if one.environment is not None:
            lines = (PEERS / "requirements" / f"{one.environment}.txt").read_text().split()
            assert lines
            assert all(line.count("==") == 1 and "/" not in line for line in lines)


def test_a_worker_answers(start):
    with start("works") as worker:
        assert "numpy" in worker.versions
        assert worker.ask(prepare={})["temporary"] == 1000
        answer = worker.ask(run=3, seed=1)
        assert len(answer["seconds"]) == len(answer["values"]) == 3
        assert worker.ask(memory=True)["peak"] > 0
        with pytest.raises(Crashed, match="not understood"):
            worker.ask(unheard="of")
        assert worker.is_running
    assert not worker.is_running


def test_the_others_go_on_when_one_crashes(start):
    kinds = ("works", "refuses", "dies", "fails", "works")
    workload = workloads.filtering()[0]
    entries = [measuring.Entry(workload, f"{kind} {place}", 1) for place, kind in enumerate(kinds)]
    given_back = []

    def finish(entry, worker):
        given_back.append(entry.contender)
        worker.close()

    found = measuring.measure(
        entries, EFFORT, start=lambda entry: start(entry.contender.split()[0]), finish=finish, tell=lambda what: None
    )
    works, refuses, dies, fails, again = found
    for one in (works, again):
        assert one["summary"]["repeats"] == EFFORT.repeats
        assert len(one["values"]) > EFFORT.repeats
    assert refuses["crashed"] == "ValueError: no such thing in library.py"
    assert dies["crashed"] == "out of luck"
    assert fails["crashed"] == "RuntimeError: too many particles"
    assert given_back == ["works 0", "works 4"]


def test_a_worker_that_does_not_answer_is_given_up(start):
    with start("hangs") as worker:
        worker.ask(prepare={})
        with pytest.raises(Crashed, match="no answer"):
            worker.ask(0.2, run=1, seed=1)


def test_folders_stay_out_of_the_results():
    text = without_folders('File "/home/someone/env/lib/thing.py": 1/2 of a/b')
    assert text == 'File "thing.py": 1/2 of a/b'


def result(name, median, *, variant=1, workload="w"):
    summary = {"median": median, "low": 0.9 * median, "high": 1.1 * median, "repeats": 7}
    memory = {"peak": 300.0, "before": 200.0}
    content = {"workload": workload, "contender": name, "variant": variant, "seconds": [median], "summary": summary}
    return content | {"first": 1.0, "temporary": None, "memory": memory}


def made_up():
    """Results of a suite in which every peer takes three times as long, but for one that crashed."""
    rows = []
    for workload in workloads.rows(quick=False):
        entries = [result(OURS, 0.01)]
        entries += [
            result(one.name, 0.03 + 0.01 * variant, variant=variant)
            for one in contenders_of(workload)[1:]
            for variant in one.variants
        ]
        crashed = {"workload": workload.name, "contender": "pyro", "variant": 1, "seconds": [], "crashed": "bad luck"}
        entries = [one if one["contender"] != "pyro" else crashed for one in entries]
        described = {"name": workload.name, "title": workload.title, **workload.as_request()}
        rows.append({"workload": described, "results": entries, "best": measuring.best(entries), "left_out": {}})
    growth = {}
    for axis in workloads.AXES:
        points = [result(OURS, 1e-5 * 10**place) | {"temporary": 2_000_000 + 4000 * place} for place in range(4)]
        growth[axis] = curve(axis, [10, 100, 1000, 10_000], points) | {"fixed": {"K": 1}}
    growth["steps"] |= along_steps(growth["steps"], 1, 100)
    waited = {"summary": statistics.summary([0.5]), "seconds": [0.5]}
    begun = dict.fromkeys((*startup.IMPORTS, startup.HELP), waited) | {startup.FIT: {"crashed": "no", "seconds": []}}
    return {"rows": rows, "growth": growth, "startup": begun}


def test_the_best_variant_counts_and_ratios_are_to_ours():
    chosen = measuring.best([result(OURS, 0.01), result("torch", 0.09), result("torch", 0.04, variant=2)])
    assert [(one["contender"], one["variant"], one["ratio"]) for one in chosen] == [(OURS, 1, 1.0), ("torch", 2, 4.0)]


def test_targets_say_what_was_met_and_what_was_not_measured():
    found = {one.demand: one for one in targets(made_up())}
    assert found["filtering, B=64, T=100, K=1000: faster than every peer"].met
    assert found["filtering, T=1000, K=100: faster than particles"].met is False
    assert found["learning step, B=10, T=50, K=10: faster than the PyTorch loop"].met is False
    assert found["learning step, B=10, T=50, K=1000: faster than the PyTorch loop"].met
    assert found["MCFO never slower than our FIVO: the worst row"].met
    assert found["MCFO faster than our FIVO: the median row"].met is False
    assert found["time grows with T: exponent"].measured == "1.00"
    assert found["mcfo --help, seconds"].met
    assert found["second mcfo fit, to its first step, seconds"].met is None
    assert all(one.met is None for one in targets({}))
    assert found.keys() == {one.demand for one in targets({})}


def test_a_peer_that_computes_something_else_is_no_peer():
    results = made_up()
    row = results["rows"][0]
    for one in row["best"]:
        if one["contender"] == "blackjax":
            one |= {"ratio": 0.1, "truth": {"agrees": False, "sigmas": -90.0}}
    assert next(iter(targets(results))).met


def test_tables_csv_and_figure(tmp_path: Path):
    results = made_up()
    results["targets"] = [one._asdict() for one in targets(results)]
    console = Console(width=140, record=True, file=(tmp_path / "tables.txt").open("w"))
    tables.show(console, results)
    text = console.export_text()
    console.file.close()
    assert "crashed: bad luck" in text
    assert "not met" in text
    tables.write_csv(tmp_path / "bench.csv", results)
    lines = (tmp_path / "bench.csv").read_text().splitlines()
    assert len(lines) == 1 + sum(len(row["results"]) for row in results["rows"])
    draw(tmp_path / "bench.png", results)
    assert (tmp_path / "bench.png").stat().st_size > 10_000
