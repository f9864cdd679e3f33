"""The cache of compiled programs."""

import os
import subprocess
import sys

import pytest

from mcfo.cli.compile_cache import remove_oldest, use_compile_cache

NAME = "JAX_COMPILATION_CACHE_DIR"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.delenv(NAME, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_the_folder_is_the_users_unless_another_is_named(home, monkeypatch):
    use_compile_cache()
    assert os.environ[NAME] == str(home / "mcfo" / "programs")
    monkeypatch.setenv(NAME, "elsewhere")
    use_compile_cache()
    assert os.environ[NAME] == "elsewhere"


def test_without_a_place_nothing_is_cached(home, monkeypatch):
    (home / "mcfo").write_text("in the way")
    use_compile_cache()
    assert NAME not in os.environ


def test_the_oldest_programs_go_first(tmp_path):
    for age, name in enumerate(("new", "older", "oldest")):
        (tmp_path / name).write_bytes(bytes(10))
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    remove_oldest(tmp_path, 20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "older"]


@pytest.mark.slow
def test_a_second_command_finds_the_programs(home, tmp_path):
    (tmp_path / "x.csv").write_text("x\n" + "\n".join(str(number % 3) for number in range(30)) + "\n")
    words = ["fit", "linear-gaussian", "--data", "x.csv", "--steps", "2", "--particles", "5", "--devices", "1", "--out"]
    for out in ("first", "second"):
        command = [sys.executable, "-c", "from mcfo.cli.main import main; main()", *words, out]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
        names = [path.name for path in (home / "mcfo" / "programs").iterdir()]
        compiled = {name for name in names if name.endswith("-cache")}
        if out == "first":
            before = compiled
    assert any("chunk" in name for name in before), "the training step is among them"
    assert compiled == before, "the second run compiled none of them again"
