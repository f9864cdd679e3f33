"""The command line, as processes of its own."""

import subprocess
import sys
from pathlib import Path

import pytest


def mcfo(*arguments, **options):
    command = [str(Path(sys.executable).with_name("mcfo")), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


@pytest.mark.slow
def test_demo_writes_a_picture_and_never_over_another(tmp_path):
    out = tmp_path / "demo"
    first = mcfo("demo", "--out", out, "--steps", 30, "--particles", 50)
    assert first.returncode == 0, first.stderr
    assert "log-evidence" in first.stdout
    picture = out / "demo.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    before = picture.stat().st_mtime_ns
    second = mcfo("demo", "--out", out)
    assert second.returncode == 2
    assert second.stderr.startswith(f"mcfo: {out} exists already. Choose another folder")
    assert picture.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--out", "file/demo"], "Cannot make the folder file/demo"),
        (["demo", "--out", "file", "--force"], "file is not a folder"),
        (["demo", "--seed", "99999999999999999999"], "--seed"),
        (["demo", "--particles", "1"], "--particles"),
        (["demo", "--steps", "many"], "--steps"),
        (["dmeo"], "Did you mean 'demo'"),
    ],
)
def test_bad_input_ends_with_a_message_and_code_2(arguments, message, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    result = mcfo(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_help_comes_without_jax():
    script = "import sys; from mcfo.cli import app; sys.exit('jax' in sys.modules or 'numpyro' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
    assert mcfo("--version").stdout.startswith("mcfo 0.")
    result = mcfo("--help")
    assert result.returncode == 0
    assert "demo" in result.stdout


def test_unknown_public_names_are_refused():
    import mcfo as package

    with pytest.raises(AttributeError, match="no attribute 'Bootstrapp'"):
        package.Bootstrapp  # noqa: B018
    assert "SMC" in dir(package)
