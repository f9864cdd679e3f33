"""Commands on what is hostile or broken: one message, exit code 2, and nothing outside of their folders."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mcfo.catalogue.trust import trust, trust_list, trusted
from mcfo.cli.compile_cache import use_compile_cache
from mcfo.data.npz import read_arrays, write_npz
from mcfo.errors import InputError
from support.commands import SMALL, invoke, refused

OWN = """
from pathlib import Path
import jax.numpy as jnp
import numpyro.distributions as dist
from mcfo import MarkovModel

class Drift(MarkovModel):
    speed: jnp.ndarray

    def __init__(self):
        Path(__file__).with_name("ran").touch()
        self.speed = jnp.zeros(1)

    def initial(self, memory, inputs):
        return dist.Normal(jnp.zeros(1), 1.0).to_event(1)

    def transition(self, memory, inputs):
        return dist.Normal(memory + self.speed, 1.0).to_event(1)

    def emission(self, memory, latent, inputs):
        return dist.Normal(latent, 1.0).to_event(1)
"""


@pytest.fixture
def run(classical_run, tmp_path):
    shutil.copytree(classical_run, tmp_path / "place")
    return tmp_path / "place"


def change(run, **arrays):
    path = run / "run" / "model.npz"
    write_npz(path, read_arrays(path) | arrays)


def first_array(run):
    return next(iter(read_arrays(run / "run" / "model.npz").items()))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda array: array.astype(str), "has dtype <U"),
        (lambda array: array + 1j, "has dtype complex"),
        (lambda array: array * np.nan, "is nan, but a parameter is a finite number"),
        (lambda array: array + np.inf, "is inf, but a parameter is a finite number"),
    ],
)
def test_parameters_that_are_no_numbers(run, spoil, message):
    name, array = first_array(run)
    change(run, **{name: spoil(array)})
    assert refused(invoke("evaluate", run / "run", "--data", run / "series.csv"), message)


def test_sizes_that_cannot_be_allocated(recurrent_run, tmp_path):
    shutil.copytree(recurrent_run, tmp_path / "place")
    path = tmp_path / "place" / "run" / "config.json"
    config = json.loads(path.read_text())
    config["model"]["options"]["hidden"] = "1000000"
    path.write_text(json.dumps(config))
    result = invoke("filter", path.parent, "--data", tmp_path / "place" / "pieces.npz", "--out", tmp_path / "x.csv")
    assert refused(result, "bytes after unpacking, but at most")


def test_links_in_a_run_folder(run, tmp_path):
    (tmp_path / "secret").write_text('{"secret": 1}')
    results = run / "run" / "results.json"
    results.unlink()
    results.symlink_to(tmp_path / "secret")
    assert refused(invoke("report", run / "run"), "results.json is a link")
    results.unlink()
    shutil.move(run / "run" / "checkpoints", tmp_path / "checkpoints")
    (run / "run" / "checkpoints").symlink_to(tmp_path / "checkpoints")
    command = ["fit", "linear-gaussian", "--data", run / "series.csv", "--out", run / "run", *SMALL, "--seeds", "2"]
    assert refused(invoke(*command, "--resume"), "checkpoints is a link")


@pytest.mark.ci
def test_code_that_a_run_folder_names(tmp_path, monkeypatch):
    own, data, run = tmp_path / "own.py", tmp_path / "data.csv", tmp_path / "run"
    own.write_text(OWN)
    data.write_text("x\n1.5\n0.5\n1.0\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "mine"))
    fit = invoke("fit", f"{own}:Drift", "--data", data, "--out", run, *SMALL)
    assert fit.exit_code == 0, fit.output
    evaluate = ["evaluate", run, "--data", data, "--particles", 5]
    ran = tmp_path / "ran"

    def runs(*words):
        ran.unlink(missing_ok=True)
        result = invoke(*evaluate, *words)
        assert ran.exists() == (result.exit_code == 0)
        return result

    assert runs().exit_code == 0, "who fitted it trusts it"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another"))
    assert refused(runs(), "which is not on your list of trusted code")
    assert runs("--trust-code").exit_code == 0
    assert refused(runs(), "which is not on your list of trusted code"), "it holds for one command"
    assert runs("--model", f"{own}:Drift").exit_code == 0
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "mine"))
    own.write_text(OWN + "# another one\n")
    assert refused(runs(), "which is not on your list of trusted code")
    own.unlink()
    assert refused(runs(), "whose file is not where it was. Say where it is: --model path/to/own.py:Drift")


def test_a_list_that_others_can_write(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    own = tmp_path / "own.py"
    own.write_text("")
    with pytest.raises(InputError, match="not on your list"):
        trusted("model", tmp_path, str(own), "own.py:Name", "--model")
    trust(f"{own}:Name")
    assert trusted("model", tmp_path, str(own), "own.py:Name", "--model") == f"{own}:Name"
    trust_list().chmod(0o666)
    with pytest.raises(InputError, match="Others can write to"):
        trusted("model", tmp_path, str(own), "own.py:Name", "--model")


NAMES = ["a$b$", "[red]x", "$x", "=1+1", "\x1b[2Jx", "\\", ":smile:"]


def test_names_are_shown_as_they_are(tmp_path):
    path = tmp_path / "data.csv"
    rows = "\n".join(",".join(f"{step * (index + 2) % 7}.5" for index in range(len(NAMES))) for step in range(9))
    path.write_text(",".join(NAMES) + "\n" + rows + "\n")
    result = invoke("data", "inspect", path, "--plot", tmp_path / "data.png")
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    for name in (*NAMES[:4], r"\x1b[2Jx", ":smile:"):
        assert name in result.stdout


def test_names_are_no_formulas(tmp_path, run):
    (run / "more.csv").write_text("series,time,level\n=1+1,1,0.5\n=1+1,2,0.7\n-2,1,0.1\n-2,2,0.4\n")
    out = tmp_path / "states.csv"
    assert invoke("filter", run / "run", "--data", run / "more.csv", "--out", out).exit_code == 0
    first = {line.partition(",")[0] for line in out.read_text().splitlines()[1:]}
    assert first == {"'=1+1", "-2"}


def test_a_folder_of_programs_that_others_can_write(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    use_compile_cache()
    folder = tmp_path / "mcfo" / "programs"
    assert folder.stat().st_mode & 0o077 == 0
    assert os.environ.pop("JAX_COMPILATION_CACHE_DIR") == str(folder)
    folder.chmod(0o777)
    use_compile_cache()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
    assert f"Others can write into {folder}" in capsys.readouterr().err


def mcfo(*words, **options):
    """A command in a process of its own, with a locale that knows no UTF-8."""
    command = [sys.executable, "-m", "mcfo", *map(str, words)]
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    return subprocess.run(command, env=environment, capture_output="stdout" not in options, **options)


@pytest.mark.ci
def test_streams_of_bytes_that_are_no_text(run):
    content = b"0.5\n\xff\xfe\n" + b"9" * 5000 + b"\n" + b"1" * 200_000 + b"\n\x00\n0.7\n"
    result = mcfo("--limit", "line=1e5", "stream", run / "run", "--particles", 5, "--skip-bad", input=content)
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.returncode == 0, result.stderr
    errors = [one.get("error", "") for one in answers]
    assert [one.get("step") for one in answers] == [1, None, None, None, None, 2]
    assert "no text in UTF-8" in errors[1]
    assert "more than 100000 bytes" in errors[3]
    strict = mcfo("stream", run / "run", "--particles", 5, input=b"\xff\n")
    assert (strict.returncode, strict.stderr.count(b"\n")) == (2, 1)
    assert b"Line 1 of the stream: it is no text in UTF-8" in strict.stderr


@pytest.mark.ci
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_output_to_a_full_device(run):
    with Path("/dev/full").open("w") as full:
        lines = mcfo("stream", run / "run", "--particles", 5, input=b"0.5\n0.7\n", stdout=full, stderr=subprocess.PIPE)
        table = mcfo("models", stdout=full, stderr=subprocess.PIPE)
    for result, message in ((lines, b"Cannot write the answer after step 0: No space"), (table, b"No space left on d")):
        assert result.returncode == 2
        assert message in result.stderr
        assert result.stderr.count(b"\n") == 1
