"""Inputs made from dates, and rows that are absent."""

import datetime

import numpy as np
import pandas as pd
import pytest

import mcfo
from mcfo.data.calendar import Calendar, read_holidays
from mcfo.data.run_columns import Inputs, coming_inputs
from mcfo.data.tables import read_series
from mcfo.errors import InputError
from mcfo.inference.datasets import named_series


def daily(count=21, start="2020-12-14", freq="D"):
    return pd.Series(np.arange(count) % 5 + 0.5, pd.date_range(start, periods=count, freq=freq), name="x")


def test_weekdays_are_effects_that_sum_to_zero():
    inputs = np.asarray(read_series(daily(), calendar=["weekday"]).series_list[0].inputs)
    assert inputs.shape == (21, 6)
    np.testing.assert_array_equal(inputs[:6], np.eye(6), "14 December 2020 was a Monday")
    np.testing.assert_array_equal(inputs[6], -np.ones(6))
    np.testing.assert_array_equal(inputs.sum(axis=0), np.zeros(6))
    dummies = np.asarray(read_series(daily(), calendar="weekday-dummies").series_list[0].inputs)
    np.testing.assert_array_equal(dummies[6], np.zeros(6))


def trading_days(year, month):
    """Count in another way: day by day."""
    first = datetime.date(year, month, 1)
    days = [first + datetime.timedelta(n) for n in range(31)]
    counts = np.bincount([day.weekday() for day in days if day.month == month], minlength=7)
    return counts[:6] - counts[6]


@pytest.mark.parametrize("freq", ["MS", "ME"])
def test_months_have_trading_days(freq):
    table = read_series(daily(24, "2019-01-01", freq), calendar=["month", "weekday"])
    inputs = np.asarray(table.series_list[0].inputs)
    np.testing.assert_array_equal(inputs[:12, :11], np.vstack([np.eye(11), -np.ones(11)]))
    expected = [trading_days(year, month) for year in (2019, 2020) for month in range(1, 13)]
    np.testing.assert_array_equal(inputs[:, 11:], expected)


@pytest.mark.parametrize(
    ("freq", "december"), [("D", [0, 1, 1]), ("W-MON", [0, 2]), ("MS", [2]), ("QS", [2]), ("QE", [2])]
)
def test_holidays_count_where_they_lie(freq, december):
    christmas = {"Christmas": ["2020-12-25", "2020-12-26"]}
    table = read_series(daily(40, "2020-12-14" if freq in ("D", "W-MON") else "2019-01-01", freq), calendar=[christmas])
    inputs = np.asarray(table.series_list[0].inputs)[:, 0]
    assert inputs.sum() == 2
    at = int(np.argmax(inputs > 0))
    np.testing.assert_array_equal(inputs[at + 1 - len(december) + (freq == "D") :][: len(december)], december)
    day = table.moments[0][at].astype("datetime64[D]").astype(object)
    expected = {
        "D": (2020, 12, 25),
        "W-MON": (2020, 12, 21),
        "MS": (2020, 12, 1),
        "QS": (2020, 10, 1),
        "QE": (2020, 12, 31),
    }
    assert (day.year, day.month, day.day) == expected[freq]


def test_files_of_holidays(tmp_path):
    path = tmp_path / "days.txt"
    path.write_text("# closed\n2020-12-25\n\n2020-12-26  # second\n")
    assert read_holidays(path) == {"days": ["2020-12-25", "2020-12-26"]}
    path.write_text("holiday,ds\nEaster,2020-04-12\nChristmas,2020-12-25\nEaster,2021-04-04\n")
    assert read_holidays(path) == {"Easter": ["2020-04-12", "2021-04-04"], "Christmas": ["2020-12-25"]}
    calendar = Calendar.read(f"month,{path}")
    assert Calendar.from_data(calendar.as_data()) == calendar
    assert calendar.names[-2:] == ["Easter", "Christmas"]
    assert Calendar.from_data({"parts": "month", "holidays": {"a": 3}}) is None


def test_the_coming_inputs_are_made_from_the_coming_dates():
    holidays = {"New Year": ["2020-12-16", "2021-01-05"]}
    table = read_series(daily(), calendar=["weekday", holidays])
    coming = named_series(table).coming(3)
    inputs = coming_inputs(Inputs.from_table(table), 3, coming=coming[0])
    np.testing.assert_array_equal(inputs, [[*np.eye(6)[0], 0], [*np.eye(6)[1], 1], [*np.eye(6)[2], 0]])
    with pytest.raises(InputError, match=r"The model reads the calendar .Mon, Tue.* dates of the steps must be known"):
        coming_inputs(Inputs.from_table(table), 3)


def test_hours_of_a_zone_have_its_weekdays():
    hours = pd.date_range("2020-12-13 22:00", periods=4, freq="h", tz="America/New_York")
    inputs = np.asarray(read_series(pd.Series(np.arange(4.0), hours), calendar="weekday").series_list[0].inputs)
    np.testing.assert_array_equal(inputs[:, 0], [-1, -1, 1, 1], "Monday begins at midnight in New York, not in UTC")


def test_a_forecast_by_a_model_with_a_calendar():
    """A level of zero and known weights: the mean of a forecast is the effect of its weekday."""
    weights = np.array([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])
    model = mcfo.models.LinearGaussian(
        initial_mean=0.0,
        initial_noise=1e-8,
        transition_matrix=1.0,
        transition_noise=1e-8,
        emission_matrix=1.0,
        emission_noise=1e-4,
        emission_inputs=weights,
    )
    table = read_series(daily(), calendar=["weekday"])
    made = mcfo.forecast(model, mcfo.proposals.Bootstrap(), table, 7, particles=20, draws=20)
    np.testing.assert_allclose(made["observation_mean"].values[0, :, 0], [1, 2, 3, 4, 5, 6, -21], atol=0.1)
    assert str(made["moment"].values[0, 0])[:10] == "2021-01-04"


BAD = {
    "text": ("2020-12-25\n24.12.2020\n", "days.txt, line 2: '24.12.2020' is not an ISO date"),
    "a row without a date": ("date,name\n2020-12-25,a\n,b\n", "line 3: '' is not an ISO date"),
    "nothing": ("# none\n", "has no dates. Write one holiday a line"),
    "another year": ("1999-12-25\n", "None of the 1 dates of days lies within the data, which go from 2020-12-14 to"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_holidays(case, tmp_path):
    content, message = BAD[case]
    (tmp_path / "days.txt").write_text(content)
    with pytest.raises(InputError, match=message):
        read_series(daily(), calendar=["month", tmp_path / "days.txt"])


def test_calendars_that_cannot_be():
    with pytest.raises(
        InputError, match=r"needs the dates of the steps, but there are no times. Name the column of dates"
    ):
        read_series(pd.DataFrame({"x": [1, 2, 3]}), calendar=["month"])
    with pytest.raises(InputError, match="but the times are numbers"):
        read_series(pd.DataFrame({"time": [1, 2, 3], "x": [1, 2, 3]}), calendar=["month"])
    with pytest.raises(
        InputError, match=r"There is no calendar input 'mnth', nor a file of that name. Did you mean 'month'"
    ):
        read_series(daily(), calendar=["mnth"])
    with pytest.raises(InputError, match=r"Cannot read the holidays in none.csv: No such file"):
        read_series(daily(), calendar=["none.csv"])
    with pytest.raises(InputError, match="'weekday' is the same at every step"):
        read_series(daily(freq="W"), calendar=["weekday"])
    with pytest.raises(InputError, match="'month' needs steps of a month or less, but these have 3 months"):
        read_series(daily(freq="QS"), calendar=["month"])
    with pytest.raises(InputError, match="'2020/12/25' is not an ISO date"):
        read_series(daily(), calendar=[{"a": ["2020/12/25"]}])
    with pytest.raises(InputError, match="are given twice"):
        read_series(daily(), calendar=[{"a": ["2020-12-25"]}, {"a": ["2020-12-26"]}])
    with pytest.raises(InputError, match="The calendar is empty"):
        read_series(daily(), calendar=[])


@pytest.mark.parametrize("freq", ["MS", "ME", "QE", "D", "W", "h"])
def test_rows_that_are_absent_become_gaps(freq):
    whole = daily(30, "2020-01-01", freq)
    lacking = whole.drop(whole.index[[4, 5, 17]])
    table = read_series(lacking).on_grid()
    assert "3 rows are absent, the first after" in table.notes[0]
    np.testing.assert_array_equal(table.moments[0], whole.index.to_numpy())
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(table.series_list[0].values()[:, 0])), [4, 5, 17])
    assert table.spacing.even
    with pytest.warns(UserWarning, match="3 rows are absent"):
        named = named_series(lacking)
    assert len(named.series_list[0].values()) == 30
    pd.testing.assert_index_equal(table.to_frame().index, whole.index)
    assert read_series(whole).on_grid().notes == (), "nothing is absent"


def test_what_is_no_grid_stays_as_it_is():
    uneven = pd.Series(
        np.arange(4.0),
        pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-09", "2020-01-29"]) + pd.to_timedelta([0, 0, 0, 5], "h"),
    )
    sparse = daily(60).iloc[[0, 1, 2, 3, 20, 30, 40, 59]]
    market = daily(40, freq="B").drop(pd.bdate_range("2020-12-24", "2020-12-28"))
    numbers = pd.Series(np.arange(4.0), index=[1, 2, 3, 7])
    for data in (uneven, sparse, market, numbers):
        table = read_series(data)
        assert table.on_grid() is table
    with_inputs = read_series(daily().drop(daily().index[3]).to_frame().assign(u=1.0), inputs=["u"])
    assert with_inputs.on_grid() is with_inputs, "inputs must be known at every step"


def test_counts_stay_counts_around_a_gap():
    counts = pd.Series([1, 2, 4, 3], pd.to_datetime(["2020-01-01", "2020-02-01", "2020-04-01", "2020-05-01"]))
    series = read_series(counts).on_grid().series_list[0]
    assert series.observations.dtype.kind == "i"
    np.testing.assert_array_equal(series.values()[:, 0], [1, 2, np.nan, 4, 3])
