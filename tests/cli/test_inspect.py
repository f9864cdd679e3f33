"""`mcfo data inspect`, which looks, and calendar inputs from the command line."""

import json

import numpy as np
import pandas as pd
import pytest

import mcfo
from mcfo.catalogue.registry import CATALOGUE
from support.commands import SMALL, invoke, planned, refused
from support.real_series import AIRLINE


def squeezed(result):
    return " ".join(result.stdout.split())


def airline(folder, **columns):
    months = [f"{1949 + month // 12}-{month % 12 + 1:02}" for month in range(144)]
    frame = pd.DataFrame({"month": months, "passengers": AIRLINE.astype(int)} | columns)
    frame.to_csv(folder / "air.csv", index=False)
    return folder / "air.csv", frame


def test_a_look_says_what_follows(tmp_path):
    """Season, trend, log; the missing row and the guess about the time are said; and the command is right."""
    path, frame = airline(tmp_path)
    frame.drop(index=30).to_csv(path, index=False)
    result = invoke("data", "inspect", path)
    assert result.exit_code == 0, result.output
    text = squeezed(result)
    assert "Reads month as the time." in text
    assert "A row is absent, the first after 1951-06-01, and is a step without a value." in text
    assert "evenly spaced: a month" in text
    assert "season of 12" in text
    assert f"fit structural --data {path} --set trend=local --set season=12 --set transform=log --out run" in text
    words = next(line for line in result.stdout.splitlines() if line.startswith("Learn from it")).split()[4:]
    entry, options = CATALOGUE[words[1]], [word for word in words if "=" in word]
    assert {option.split("=")[0] for option in options} <= set(entry.options)


def test_a_look_at_columns_of_different_units(tmp_path):
    path, _ = airline(tmp_path, share=np.sin(np.arange(144)) / 100)
    text = squeezed(invoke("data", "inspect", path))
    assert "Columns passengers and share seem to have different units" in text


DAYS = "date,name\n1950-04-09,Easter\n1961-04-02,Easter\n"


def test_a_run_remembers_the_calendar(tmp_path, monkeypatch):
    path, _ = airline(tmp_path)
    (tmp_path / "days.csv").write_text(DAYS)
    fit = ["local-level", "--data", path, "--calendar", f"month,weekday,{tmp_path / 'days.csv'}"]
    planned(monkeypatch, *fit, "--out", tmp_path / "run", *SMALL)
    data = json.loads((tmp_path / "run" / "config.json").read_text())["data"]
    assert data["calendar"] == {"parts": ["month", "weekday"], "holidays": {"Easter": ["1950-04-09", "1961-04-02"]}}
    table = mcfo.read_for_run(tmp_path / "run", path)
    assert table.series_list[0].inputs.shape == (144, 18)
    assert table.calendar.names[-1] == "Easter"


def test_bad_calendars_are_refused(tmp_path):
    path, _ = airline(tmp_path)
    (tmp_path / "plain.csv").write_text("x\n1\n2\n4\n")
    bad = ["fit", "local-level", "--out", tmp_path / "no", *SMALL]
    numbers = invoke(*bad, "--data", tmp_path / "plain.csv", "--calendar", "month")
    assert refused(numbers, "The calendar needs the dates of the steps, but there are no times")
    (tmp_path / "days.csv").write_text("1950-04-09\nEaster 1961\n")
    unread = invoke(*bad, "--data", path, "--calendar", tmp_path / "days.csv")
    assert refused(unread, "days.csv, line 2: 'Easter 1961' is not an ISO date")
    assert refused(invoke(*bad, "--data", path, "--calendar", "mouth"), "Did you mean 'month'?")
    assert not (tmp_path / "no").exists()


@pytest.mark.slow
def test_forecasts_make_the_coming_calendar(tmp_path):
    """The holidays are in the run: their file may be gone."""
    path, _ = airline(tmp_path)
    (tmp_path / "days.csv").write_text(DAYS)
    fit = ["fit", "local-level", "--data", path, "--calendar", f"weekday,{tmp_path / 'days.csv'}"]
    result = invoke(*fit, "--out", tmp_path / "run", *SMALL)
    assert result.exit_code == 0, result.output
    (tmp_path / "days.csv").unlink()
    out = tmp_path / "next.csv"
    forecast = ["forecast", tmp_path / "run", "--data", path, "--steps", "4", "--particles", "10", "--out", out]
    result = invoke(*forecast, "--plot", tmp_path / "next.png")
    assert result.exit_code == 0, result.output
    assert pd.read_csv(out)["moment"].tolist() == ["1961-01-01", "1961-02-01", "1961-03-01", "1961-04-01"]
    drawn = invoke("simulate", tmp_path / "run", "--out", tmp_path / "s.csv")
    assert refused(drawn, "The model reads the calendar (Mon")
