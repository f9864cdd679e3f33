"""The help: in groups, with what most people need first."""

import re
import sys

import pytest

from support.commands import invoke, refused

GROUPS = {
    "fit": ["Options", "Data", "Model", "Objective", "Optimization", "Output"],
    "filter": ["Options", "Sampling", "Model", "Data"],
    "forecast": ["Options", "Sampling", "Output", "Model", "Data"],
    "evaluate": ["Options", "Sampling", "Model", "Data", "Output", "Forecasts, with --rolling"],
    "posterior": ["Options", "Model", "Sampling", "Output", "Data"],
    "stream": ["Options", "Sampling", "Output", "Learning, with --learn", "Model"],
}


@pytest.mark.parametrize("command", GROUPS)
def test_options_stand_in_groups(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    text = invoke(command, "--help").stdout
    panels = [name for name in re.findall(r"╭─ (.+?) ─", text) if name != "Arguments"]
    assert panels == GROUPS[command]
    first = text.split("╭─ Options")[1].split("╰")[0]
    assert 3 < len(re.findall(r"^│ [* ]*--", first, re.MULTILINE)) <= 11, "the first group stays short"


def test_every_command_is_said_in_one_line(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    text = invoke("--help").stdout
    names = (
        "demo",
        "models",
        "data",
        "fit",
        "report",
        "evaluate",
        "posterior",
        "filter",
        "smooth",
        "forecast",
        "simulate",
        "stream",
    )
    for name in (*names, "reproduce"):
        (line,) = re.findall(rf"^│ {name} +(.*?) *│$", text, re.MULTILINE)
        assert line.endswith("."), name


def test_music_names_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mido", None)
    (tmp_path / "piece.mid").write_bytes(b"MThd")
    forecast = ["forecast", tmp_path, "--data", tmp_path / "piece.mid", "--out", tmp_path / "f.csv"]
    assert refused(invoke(*forecast), "MIDI files need the package mido: pip install 'mcfo[music]'.")
