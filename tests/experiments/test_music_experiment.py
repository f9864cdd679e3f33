"""The music experiment: its data, its tables, and a whole run of the smallest size."""

import csv
import json
import math
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from mcfo.cli.main import app
from mcfo.data.music_files import find_music
from mcfo.data.piano_rolls import KEYS, transpose
from mcfo.errors import InputError
from mcfo.experiments import music
from mcfo.experiments.music import PRESETS, Course, Music, MusicOutcomes, Preset, build_problem
from mcfo.experiments.runs import METHODS, Run, Runs, cost
from mcfo.experiments.study import run_study
from support.tiny_studies import write_rolls

pytestmark = pytest.mark.xdist_group("music-experiment")


@pytest.fixture(scope="module")
def rolls(tmp_path_factory):
    return write_rolls(tmp_path_factory.mktemp("rolls"))


def test_baselines_are_those_of_counting(rolls):
    problem = build_problem(rolls / "jsb.npz", transposed=0)
    train, test = problem.rolls["train"], problem.rolls["test"]
    found = problem.baselines()
    total, steps = 0.0, 0
    chained = 0.0
    for roll in test:
        for step, now in enumerate(roll):
            for key in range(KEYS):
                on = sum(piece[:, key].sum() for piece in train)
                share = (on + 0.5) / (sum(map(len, train)) + 1)
                total -= math.log(share if now[key] else 1 - share)
                if step:
                    pairs = [(p[t - 1, key], p[t, key]) for p in train for t in range(1, len(p))]
                    after = [b for a, b in pairs if a == roll[step - 1, key]]
                    share = (sum(after) + 0.5) / (len(after) + 1)
                chained -= math.log(share if now[key] else 1 - share)
        steps += len(roll)
    assert found["note frequencies"] == pytest.approx(total / steps, rel=1e-9)
    assert found["each key a Markov chain"] == pytest.approx(chained / steps, rel=1e-9)


def test_transpositions_stay_on_the_piano(rolls):
    roll = np.zeros((2, KEYS), np.uint8)
    roll[0, [1, 86]] = 1
    up, down = transpose(roll, 1), transpose(roll, -1)
    assert np.flatnonzero(up[0]).tolist() == [2, 87]
    assert np.flatnonzero(down[0]).tolist() == [0, 85]
    assert transpose(roll, 2) is None
    assert transpose(roll, -2) is None
    assert (transpose(roll, 0) == roll).all()
    plain, more = (build_problem(rolls / "jsb.npz", transposed=shift) for shift in (0, 2))
    assert len(plain.train) == 6
    assert len(more.train) == 6 * 5
    assert sorted({int(one.series_id) for one in more.train}) == list(range(30))
    assert len(more.test) == len(plain.test) == 6


def test_the_folder_is_found_or_asked_for(rolls, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_music((tmp_path, rolls), ["jsb"]) == {"jsb": rolls / "jsb.npz"}
    with pytest.raises(InputError, match=r"nottingham\.npz or Nottingham\.mat wanted.*--data"):
        find_music((rolls,), ["jsb", "nottingham"])
    with pytest.raises(InputError, match="mcfo data music --download jsb"):
        Music(PRESETS["quick"]).prepare()


def test_presets_name_known_methods_and_data():
    quick = PRESETS["quick"]
    assert [method for *_, method in quick.learners()] == ["mcfo-smc", "fivo", "iwae", "mcfo-dreg"]
    assert {data for data, *_ in PRESETS["paper"].learners()} == {"jsb", "nottingham", "musedata", "piano-midi"}
    assert {particles for *_, particles, _ in PRESETS["paper"].learners()} == {10, 20}
    assert all(set(preset.methods) <= METHODS.keys() for preset in PRESETS.values())
    costs = {name: cost(build(10)) for name, build in METHODS.items()}
    assert max(costs, key=costs.__getitem__) == "mcfo-pimh"


def learned(method="mcfo-smc", seed=0, particles=10, nll=7.0):
    lines = [
        {"seed": seed, "step": step, "log_evidence_per_step": -nll, "ess": 5.0}
        | ({"validation_nll_per_step": nll + 10 / step, "validation_ess": 30.0} if step % 20 == 0 else {})
        for step in (10, 20, 30, 40)
    ]
    numbers = {
        "test_nll": [nll, nll + 0.1], "test_nll_few": [nll + 0.3], "valid_nll": [nll + 0.2], "train_nll": [nll - 1],
        "test_ess": [100.0, 100.0], "best_step": [40], "skipped": [0], "minutes": [1.0],
    }  # fmt: skip
    arrays = {metric: np.array(values, float) for metric, values in numbers.items()}
    return Run(method, particles, seed, lines, arrays, 0, 60.0, "jsb")


def test_tables_and_claims_follow_the_numbers():
    found = [learned(), learned(seed=1, nll=7.2), learned("iwae", nll=7.5), learned(particles=20, nll=6.8)]
    outcomes = MusicOutcomes(PRESETS["quick"], {}, {"all": Runs(found)})
    outcomes.baselines = {"jsb": {"note frequencies": 12.0}}
    ours = outcomes.of(("jsb", "mcfo-smc", 10), "test_nll")
    np.testing.assert_allclose(ours.values, [7.0, 7.1, 7.2, 7.3])
    np.testing.assert_allclose(ours.by_seed, [7.05, 7.25])
    claims = {claim.claim: claim for claim in outcomes.claims()}
    against = claims["test NLL of mcfo-smc below iwae's"]
    assert against.ours == pytest.approx(-0.4)
    assert against.paper == pytest.approx(3.87 - 5.43)
    assert (against.verdict, against.test) == ("not decided", "none with 2 and 1 seeds")
    larger = claims["test NLL of mcfo-smc falls from K = 10 to 20"]
    assert larger.ours == pytest.approx(6.85 - 7.15)
    best = claims["the best test NLL is the paper's"]
    assert (best.setting, best.paper, best.verdict) == ("jsb, mcfo-smc, K = 20", 3.54, "does not hold")
    assert best.ours == pytest.approx(6.85)
    assert claims["the best test NLL below note frequencies"].verdict == "holds"
    table = outcomes.method_table("")
    row = next(row for row in table.rows if row[:3] == ["jsb", "mcfo-smc", "10"])
    assert "7.150 ± 0.129" in row
    assert (table.rows.index(row), 3) in table.marked, "the best of its K"
    header, rows = outcomes.files()["results.csv"]
    assert header == ("method", "particles", "seed", "step", "metric", "value", "data")
    assert {row[4] for row in rows} >= {"test_nll", "validation_nll_per_step", "train_nll"}
    first = [row for row in rows if row[:3] == ("mcfo-smc", 10, 0)]
    assert sum(row[4] == "test_nll" for row in first) == 2


def test_seeds_decide_claims():
    def claim(*nll):
        runs = [learned(seed=seed, nll=7 + 0.01 * seed) for seed in (0, 1)]
        runs += [learned("iwae", seed=seed, nll=value) for seed, value in enumerate(nll)]
        return MusicOutcomes(PRESETS["quick"], {}, {"all": Runs(runs)}).claims()[0].verdict

    assert claim(8.0, 8.01) == "holds"
    assert claim(6.0, 6.01) == "does not hold"
    assert claim(6.0, 8.01) == "not decided"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, rolls):
    """A whole experiment of the smallest size, with small networks."""
    out = tmp_path_factory.mktemp("experiment")
    size = Preset(
        (("jsb", Course(4, 2, 1e-3, window=3, transposed=1, evaluations=1)),),
        methods=("mcfo-smc", "iwae"),
        particles=(2,),
        validation_particles=3,
        test_particles=4,
        test_runs=2,
    )
    with pytest.MonkeyPatch.context() as patch:
        build = music.build
        tiny = {"latent": "2", "hidden": "3", "units": "3"}
        patch.setattr(music, "build", lambda name, series, options: build(name, series, {**tiny, **options}))
        run_study(Music(size, 0, rolls), out, preset="quick", command="mcfo reproduce music")
    return out


@pytest.mark.slow
def test_the_experiment_writes_its_folder(folder):
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert found == {"results.csv", "summary.csv", "claims.csv", "config.json", "report.html", "figures/curves.png"}
    with (folder / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    tests = [row for row in rows if row["metric"] == "test_nll" and row["method"] == "iwae"]
    assert [(row["particles"], row["step"]) for row in tests] == [("2", "4")] * 2
    assert {row["method"] for row in rows} == {"mcfo-smc", "iwae", "note frequencies", "each key a Markov chain"}
    config = json.loads((folder / "config.json").read_text())
    assert config["courses"]["jsb"]["window"] == 3
    page = (folder / "report.html").read_text()
    assert len(re.findall("<img", page)) == 1
    assert "semitones" in page
    assert "courses.jsb.transposed" in page


def refused(*words):
    found = CliRunner().invoke(app, ["reproduce", *words])
    assert found.exit_code == 2, found.output
    return found.output


def test_refusals(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "mcfo data music --download" in refused("music")
    assert "There is no method of this preset 'fifo'" in refused("music", "--method", "fifo")
    assert "'fivo'" in refused("music", "--method", "fifo")
    assert "compares no methods" in refused("bounds", "--method", "smc")
    assert "makes its own data" in refused("bounds", "--data", ".")
    assert "has a single data set" in refused("bounds", "--only", "jsb")
    assert "There is no data set of this preset 'jbs'" in refused("music", "--only", "jbs")
    missing = refused("music", "--preset", "long", "--only", "nottingham")
    assert "nottingham.npz" in missing
    assert "jsb.npz" not in missing, "the others are not wanted"
    assert not list(tmp_path.rglob("*.partial")), "nothing is in the way of the next run"
