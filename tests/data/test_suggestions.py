"""Seasons, transforms, cycles and trends of real series; and that noise has none."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

from mcfo.data.series_shape import describe_shape, fill_auto, suggest
from mcfo.data.suggestions import has_trend, suggest_cycle, suggest_period, suggest_periods, suggest_transform
from mcfo.data.tables import read_series
from support.real_series import AIRLINE, DRIVER_DEATHS, LYNX

CO2 = sm.datasets.co2.load_pandas().data["co2"]
MACRO = sm.datasets.macrodata.load_pandas().data
SERIES = {
    "airline": (AIRLINE, "month"),
    "driver deaths": (DRIVER_DEATHS, "month"),
    "co2, weekly": (CO2.to_numpy(), "week"),
    "co2, monthly": (CO2.resample("MS").mean().to_numpy(), "month"),
    "el nino": (sm.datasets.elnino.load_pandas().data.iloc[:, 1:].to_numpy().ravel(), "month"),
    "lynx": (LYNX, "year"),
    "sunspots": (sm.datasets.sunspots.load_pandas().data["SUNACTIVITY"].to_numpy(), "year"),
    "nile": (sm.datasets.nile.load_pandas().data["volume"].to_numpy(), "year"),
    "gdp": (MACRO["realgdp"].to_numpy(), "quarter"),
    "prices": (MACRO["cpi"].to_numpy(), "quarter"),
    "unemployment": (MACRO["unemp"].to_numpy(), "quarter"),
}
SEASONS = {"airline": 12, "driver deaths": 12, "co2, weekly": 365.25 / 7, "co2, monthly": 12, "el nino": 12}


@pytest.mark.parametrize("name", SERIES)
def test_seasons_of_real_series(name):
    values, frequency = SERIES[name]
    assert suggest_period(values, frequency) == SEASONS.get(name)
    # Without the frequency a season is a whole number of steps.
    assert suggest_period(values) == (None if name not in SEASONS else round(SEASONS[name]))


def test_what_else_real_series_show():
    shapes = {name: describe_shape([values], frequency) for name, (values, frequency) in SERIES.items()}
    assert {name for name, one in shapes.items() if one.transform == "log"} == {"airline", "lynx", "prices"}
    assert {name for name, one in shapes.items() if one.trend} == {
        *("airline", "co2, weekly", "co2, monthly", "gdp", "prices")
    }
    cycles = {name: one.cycle for name, one in shapes.items() if one.cycle}
    assert cycles == {"lynx": pytest.approx(9.6, abs=0.5), "sunspots": pytest.approx(10.8, abs=0.5)}


def autoregression(draw, count, coefficient):
    values = np.zeros(count + 100)
    for step, noise in enumerate(draw.normal(size=count + 99), 1):
        values[step] = coefficient * values[step - 1] + noise
    return values[100:]


NOISE = {
    "white noise": lambda draw, count: draw.normal(size=count),
    "Student's t": lambda draw, count: draw.standard_t(3, count) / 3**0.5,
    "a random walk": lambda draw, count: draw.normal(size=count).cumsum(),
    "AR(1), 0.5": lambda draw, count: autoregression(draw, count, 0.5),
    "AR(1), 0.9": lambda draw, count: autoregression(draw, count, 0.9),
    "AR(1), -0.7": lambda draw, count: autoregression(draw, count, -0.7),
}


def rate(found):
    return np.mean([one is not None and one is not False and one != "none" for one in found])


@pytest.mark.ci
@pytest.mark.parametrize("name", NOISE)
def test_noise_has_no_season(name):
    """The tests reject at 1 %: of 200 series more than 10 have a season by chance with probability below 1e-5."""
    draw = np.random.default_rng(0)
    series = [NOISE[name](draw, 120) for _ in range(200)]
    assert rate([suggest_period(one, "month") for one in series]) <= 0.05
    # The search over 59 periods costs more: of 40 series more than 4 by chance with probability below 1e-4.
    assert rate([suggest_period(one) for one in series[:40]]) <= 0.1
    assert rate([suggest_cycle(one) for one in series]) <= 0.05
    assert rate([has_trend(one) for one in series]) <= 0.05
    assert rate([suggest_transform(one + 50) for one in series]) <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("name", NOISE)
def test_noise_of_any_length_has_no_season(name):
    draw = np.random.default_rng(1)
    for count in (60, 150, 400):
        series = [NOISE[name](draw, count) for _ in range(200)]
        for frequency in (None, "month", "day", "hour"):
            few = series if frequency else series[:100]
            assert rate([suggest_period(one, frequency) for one in few]) <= 0.05


def test_seasons_are_found_in_noise():
    """The control: the same noise with a season that is as large as itself."""
    draw = np.random.default_rng(2)
    pattern = draw.normal(size=12)
    for name, noise in NOISE.items():
        found = [suggest_period(noise(draw, 120) + 1.5 * np.tile(pattern, 10)) for _ in range(20)]
        assert np.mean([one == 12 for one in found]) >= 0.9, name
    drifting = [has_trend(draw.normal(size=120).cumsum() + 0.5 * np.arange(120)) for _ in range(50)]
    lines = [has_trend(autoregression(draw, 120, 0.5) + 0.05 * np.arange(120)) for _ in range(50)]
    assert np.mean(drifting) >= 0.9
    assert np.mean(lines) >= 0.9


def test_gaps_and_several_seasons():
    draw = np.random.default_rng(3)
    days = np.arange(1200)
    values = np.array([1, 1, 1, 1, 1, 3, 4])[days % 7] + 3 * np.sin(2 * np.pi * days / 365.25) + draw.normal(size=1200)
    values[draw.random(1200) < 0.05] = np.nan
    assert suggest_periods(values, "D") == [7, 365.25]
    assert suggest_periods(values[:600], "day") == [7], "a year must be seen twice"
    assert suggest_periods(np.full(50, 3.0), "month") == []
    assert suggest_periods(np.arange(10.0), "month") == []
    assert suggest_period(np.tile([1.0, 2.0, 5.0], 30)) == 3, "also where nothing is left of the noise"


def table(values, start="1949-01-01", freq="MS"):
    return read_series(pd.Series(values, pd.date_range(start, periods=len(values), freq=freq), name="x"))


def test_what_follows_for_real_series():
    found = suggest(table(AIRLINE))
    assert (found.model, found.period, found.transform) == ("structural", 12, "log")
    assert found.command("air.csv") == (
        "mcfo fit structural --data air.csv --set trend=local --set season=12 --set transform=log --out run"
    )
    assert len(found.reasons) == 3
    deaths = suggest(table(DRIVER_DEATHS))
    assert (deaths.model, deaths.options["season"]) == ("structural", "12")
    assert "trend" not in deaths.options
    lynx = suggest(table(LYNX, "1821-01-01", "YS"))
    assert (lynx.model, lynx.options) == ("structural", {"cycle": "smooth", "transform": "log"})
    nile = suggest(table(SERIES["nile"][0], "1871-01-01", "YS"))
    assert (nile.model, nile.options) == ("structural", {})


def simulated():
    """Series whose model is known."""
    draw = np.random.default_rng(4)
    volatility = autoregression(draw, 1000, 0.97) * 0.25
    states = np.cumsum(draw.random(400) < 0.05) % 2
    season = np.sin(2 * np.pi * np.arange(200) / 12)
    return {
        "stochastic-volatility": np.exp(volatility / 2) * draw.normal(size=1000),
        "hmm": 5.0 * states + draw.normal(size=400),
        "poisson-counts": draw.poisson(np.exp(1 + 0.2 * autoregression(draw, 200, 0.8))),
        "negative-binomial-counts": draw.negative_binomial(1, 0.1, 200),
        "structural": draw.poisson(np.exp(1.5 + season)),
    }


@pytest.mark.parametrize("model", simulated())
def test_what_follows_for_simulated_series(model):
    values = simulated()[model]
    found = suggest(table(values))
    assert found.model == model
    if model == "structural":
        assert found.options == {"season": "12", "emission": "poisson"}


def test_binary_columns_and_uneven_times():
    bits = np.random.default_rng(5).integers(0, 2, (60, 2))
    assert suggest(read_series(pd.DataFrame(bits, columns=["a", "b"]))).model == "vrnn"
    assert suggest(read_series(pd.DataFrame(bits[:, :1], columns=["a"]))).model == "hmm"
    dates = pd.to_datetime(np.cumsum(np.random.default_rng(6).integers(1, 9, 40)), unit="D")
    uneven = suggest(read_series(pd.Series(np.random.default_rng(7).normal(size=40), dates)))
    assert uneven.model == "local-level"
    assert "uneven" in uneven.reasons[0]


def test_outliers_and_units():
    draw = np.random.default_rng(8)
    walk = draw.normal(size=(120, 2)).cumsum(axis=0)
    spoiled = walk[:, 0].copy()
    spoiled[70] += 40
    shape = describe_shape([spoiled], "month")
    assert shape.outliers >= 1
    assert suggest(table(spoiled)).options["emission"] == "student"
    found = suggest(read_series(pd.DataFrame(walk * [1.0, 1000.0], columns=["small", "large"])))
    assert "Columns large and small seem to have different units" in found.warnings[0]
    assert suggest(read_series(pd.DataFrame(walk, columns=["a", "b"]))).warnings == ()
    long = pd.DataFrame({"series": ["a"] * 120 + ["b"] * 120, "x": np.concatenate([walk[:, 0], 500 * walk[:, 1]])})
    assert "Series b and a seem to have different units in x" in suggest(read_series(long)).warnings[0]


def test_options_that_the_data_decide():
    asked = {"season": "auto", "transform": "auto", "trend": "local", "level": "walk"}
    found, note = fill_auto("structural", asked, table(AIRLINE))
    assert found == {"trend": "local", "level": "walk", "season": "12", "transform": "log"}
    assert note == "The data suggest season=12, transform=log."
    assert fill_auto("structural", asked, table(np.random.default_rng(0).normal(size=100))) == (
        {"trend": "local", "level": "walk"},
        "The data suggest no season, no transform.",
    )
    # The trend of a level that walks is decided by the data, unless it is given.
    found, note = fill_auto("structural", {"season": "4"}, table(AIRLINE))
    assert (found, note) == ({"season": "4", "trend": "local"}, "The data suggest trend=local.")
    for name, given in (("structural", {"level": "fixed"}), ("structural", {"trend": "none"}), ("local-level", {})):
        assert fill_auto(name, given, table(AIRLINE)) == (given, "")
    assert fill_auto("structural", {}, table(DRIVER_DEATHS)) == ({}, "")
    found, note = fill_auto("structural", {"cycle": "damped"}, table(LYNX))
    assert (found, note) == ({"cycle": "damped", "level": "fixed"}, "The data suggest level=fixed.")
