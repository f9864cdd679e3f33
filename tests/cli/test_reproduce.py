"""`mcfo reproduce`, help, and what every command refuses."""

import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mcfo.cli import main
from mcfo.cli import reproduce as command
from mcfo.experiments import study


def mcfo(*arguments):
    command = [str(Path(sys.executable).with_name("mcfo")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--out", "file/demo"], "Cannot create the folder file/demo"),
        (["demo", "--out", "file", "--force"], "file is not a folder"),
        (["demo", "--seed", "99999999999999999999"], "--seed"),
        (["demo", "--particles", "1"], "--particles"),
        (["demo", "--steps", "many"], "--steps"),
        (["dmeo"], "Did you mean 'demo'"),
        (["fit", "linear-gaussian", "--out", "run"], "--data"),
        (["fit", "linear-gaussian", "--data", "x.csv", "--out", "run", "--partcles", "3"], "--particles"),
        (["reproduce", "gradient"], "Did you mean 'gradients'?"),
        (["reproduce", "gradients", "--preset", "papers"], "Did you mean 'paper'?"),
        (["reproduce", "gradients", "--out", "file"], "file is not a folder"),
        (["reproduce", "gradients", "--out", "file/x"], "Cannot write file/x.partial"),
    ],
)
def test_bad_input_ends_with_a_message_and_code_2(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("not a folder")
    result = CliRunner().invoke(main.app, arguments)
    assert result.exit_code == 2  # an exception that nobody caught would end with 1
    assert message in result.stderr


class Experiment:
    """Takes the place of a module in the registry; its study is run by `run` instead of by the driver."""

    reads_files = False

    def __init__(self, ending=None, jobs=False):
        self.ending, self.jobs = ending, jobs
        self.presets = {"quick": "small", "paper": "large"}
        self.wanted = None
        self.STUDY = self

    def __call__(self, size, seed, data):
        self.size, self.seed = size, seed
        return self

    def run(self, out, *, preset, command):
        assert self.size == (self.wanted or self.presets[preset])
        (out / "figures").mkdir(exist_ok=True)
        if self.jobs:
            (out / study.JOBS).mkdir(exist_ok=True)
            (out / study.JOBS / "one.npz").touch()
        if self.ending is not None:
            raise self.ending
        (out / "results.csv").write_text(f"{preset} {self.seed}")
        (out / "figures" / "one.png").write_text(command)
        (out / "report.html").write_text("page")
        return out / "report.html"


@pytest.fixture
def reproduce(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def invoke(experiment, *arguments):
        monkeypatch.setattr(command, "import_module", lambda path: experiment)
        monkeypatch.setattr(study, "run_study", lambda one, out, **options: one.run(out, **options))
        return CliRunner().invoke(main.app, ["reproduce", "gradients", *arguments])

    return invoke


def test_reproduce_writes_a_whole_folder_and_never_over_another(reproduce):
    result = reproduce(Experiment(), "--seed", "7")
    assert result.exit_code == 0
    out = Path("results/gradients-quick")
    assert f"Report: {out / 'report.html'}" in result.stdout
    assert sorted(entry.name for entry in out.iterdir()) == ["figures", "report.html", "results.csv"]
    assert (out / "figures" / "one.png").read_text() == "mcfo reproduce gradients --preset quick --seed 7"
    again = reproduce(Experiment())
    assert again.exit_code == 2
    assert "exists already" in again.stderr
    (out / "mine.txt").write_text("kept")
    assert reproduce(Experiment(), "--seed", "8", "--force").exit_code == 0
    assert (out / "results.csv").read_text() == "quick 8"
    assert (out / "mine.txt").read_text() == "kept"
    assert [entry.name for entry in out.parent.iterdir()] == ["gradients-quick"]


def test_seeds_take_the_place_of_the_presets(reproduce):
    @dataclass(frozen=True)
    class Size:
        seeds: tuple[int, ...] = (0,)

    experiment = Experiment()
    experiment.presets = {"quick": Size()}
    experiment.wanted = Size(seeds=(0, 1, 2))
    assert reproduce(experiment, "--seeds", "3", "--out", "run").exit_code == 0
    assert Path("run/figures/one.png").read_text() == "mcfo reproduce gradients --preset quick --seed 0 --seeds 3"
    refused = reproduce(Experiment(), "--seeds", "2", "--out", "other")
    assert refused.exit_code == 2
    assert "Leave out --seeds" in refused.stderr
    assert not Path("other").exists()


def test_particles_take_the_place_of_the_presets(reproduce):
    @dataclass(frozen=True)
    class Size:
        seeds: tuple[int, ...] = (0,)
        particles: tuple[int, ...] = (10,)

    experiment = Experiment()
    experiment.presets = {"quick": Size()}
    experiment.wanted = Size(particles=(20, 50))
    assert reproduce(experiment, "--particles", "50", "--particles", "20", "--out", "run").exit_code == 0
    command = Path("run/figures/one.png").read_text()
    assert command == "mcfo reproduce gradients --preset quick --seed 0 --particles 20 --particles 50"
    refused = reproduce(Experiment(), "--particles", "20", "--out", "other")
    assert refused.exit_code == 2
    assert "Leave out --particles" in refused.stderr
    assert not Path("other").exists()


def test_an_interrupted_run_leaves_nothing_or_something_to_resume(reproduce):
    result = reproduce(Experiment(KeyboardInterrupt()), "--out", "run")
    assert result.exit_code == 130
    assert "Nothing was written" in result.stderr
    assert not list(Path().iterdir())
    result = reproduce(Experiment(KeyboardInterrupt(), jobs=True), "--out", "run")
    assert result.exit_code == 130
    assert "--resume" in result.stderr
    assert not Path("run").exists()
    refused = reproduce(Experiment(), "--out", "run")
    assert refused.exit_code == 2
    assert "run.partial holds a run that has not ended" in refused.stderr
    assert Path("run.partial/jobs/one.npz").exists()
    assert reproduce(Experiment(), "--out", "run", "--resume").exit_code == 0
    assert Path("run/report.html").exists()
    assert not Path("run.partial").exists()


def test_a_folder_of_another_is_never_taken_for_a_run(reproduce):
    Path("run.partial").mkdir()
    Path("run.partial/mine.txt").write_text("kept")
    result = reproduce(Experiment(), "--out", "run", "--force")
    assert result.exit_code == 2
    assert "in the way" in result.stderr
    assert Path("run.partial/mine.txt").exists()


@pytest.mark.parametrize("name", command.EXPERIMENTS)
def test_every_experiment_has_its_presets(name):
    found = import_module(command.EXPERIMENTS[name]).STUDY
    assert set(found.presets) >= {"quick", "paper"}
    assert issubclass(found, study.Study)
    assert found.name == name


def test_help_comes_without_jax():
    script = "import sys; from mcfo.cli.main import app; sys.exit('jax' in sys.modules or 'numpyro' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
    assert mcfo("--version").stdout.startswith("mcfo 0.")
    result = mcfo("--help")
    assert result.returncode == 0
    assert "demo" in result.stdout


def test_it_runs_as_a_module():
    result = subprocess.run([sys.executable, "-m", "mcfo", "--version"], capture_output=True, text=True, check=True)
    assert result.stdout == mcfo("--version").stdout
    refused = subprocess.run([sys.executable, "-m", "mcfo", "dmeo"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "Did you mean 'demo'" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_unknown_public_names_are_refused():
    import mcfo as package

    with pytest.raises(AttributeError, match="no attribute 'Bootstrapp'"):
        package.Bootstrapp  # noqa: B018
    assert "SMC" in dir(package)
