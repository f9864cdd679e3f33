"""Columns that are times or names of series though nobody said so."""

import pandas as pd
import pytest

from mcfo.data.tables import read_series
from mcfo.errors import InputError

ROLES = {
    "year and quarter": ("year,quarter,x\n" + "\n".join(f"{1959 + n // 4}.0,{n % 4 + 1}.0,{n * n}" for n in range(8))),
    "year and month": ("Year,Month,x\n" + "\n".join(f"{1959 + n // 12},{n % 12 + 1},{n * n}" for n in range(20))),
    "a year": "year,x\n1871,5\n1872,3\n1873,6\n",
    "quarters as text": "quarter,x\n2020Q1,1\n2020Q2,4\n2020Q3,3\n",
    "dates by another name": "Month,x\n1949-01,1\n1949-02,4\n1949-03,3\n",
    "firms by name": "firm,year,x\n"
    + "\n".join(f"{firm},{1935 + n},{n * n}" for firm in ("GM", "IBM") for n in range(4)),
    "firms by number": "firm,year,x\n" + "\n".join(f"{firm},{1935 + n},{n * n}" for firm in (1, 2) for n in range(4)),
    "years first": "year,firm,x\n" + "\n".join(f"{1935 + n},{firm},{n * n}" for n in range(4) for firm in (1, 2)),
    "long": "unique_id,ds,y\n" + "\n".join(f"{one},2020-01-0{n + 1},{n * n}" for one in "ab" for n in range(4)),
    "row numbers": "obs,x\n" + "\n".join(f"{n},{n * n}" for n in range(1, 9)),
    "series in blocks": "id,x\n" + "\n".join(f"{one},{n * n}" for one in (7, 8) for n in range(4)),
}
FOUND = {
    "year and quarter": (1, "quarter"),
    "year and month": (1, "month"),
    "a year": (1, "year"),
    "quarters as text": (1, "quarter"),
    "dates by another name": (1, "month"),
    "firms by name": (2, "year"),
    "firms by number": (2, "year"),
    "years first": (2, "year"),
    "long": (2, "day"),
    "row numbers": (1, ""),
    "series in blocks": (2, None),
}


@pytest.mark.parametrize("case", ROLES)
def test_times_and_names_are_not_taken_for_data(case, tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(ROLES[case] + "\n")
    table = read_series(path)
    assert len(table.columns) == 1, "what is left are the values"
    assert (len(table.names), table.frequency and table.frequency.name) == FOUND[case]
    assert bool(table.notes) == (case != "long"), "it is said; the names of long tables are known"
    everything = ROLES[case].splitlines()[0].split(",")
    if case in ("a year", "firms by number", "row numbers", "series in blocks"):
        assert read_series(path, values=everything).columns == everything, "unless one says otherwise"
    frame = pd.read_csv(path)
    assert (read_series(frame).names, read_series(frame).notes) == (table.names, table.notes)


def test_doubtful_columns_are_named(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("time,state,n,x\n" + "\n".join(f"{t},{t % 2},{3 * t},{t * t % 7}" for t in range(1, 11)) + "\n")
    table = read_series(path)
    assert table.columns == ["state", "n", "x"]
    assert "Column n only counts the rows, but is read as data" in table.notes[0]
    assert "Column state looks like an identifier, but is read as data" in table.notes[1]


def test_a_year_that_is_no_time_is_said(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("year,x\n1990,1\n1990,4\n1991,2\n1991,8\n")
    with pytest.raises(InputError, match="column 'year': the time 1990 stands in line 2 too, in the same series"):
        read_series(path)


def test_a_time_in_two_columns_by_name(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("a,b,x\n2020,1,5\n2020,2,6\n")
    assert read_series(path, time="a,b", values=["x"]).spans[0].first == "2020-01"
    path.write_text("a,b,x\n2020,1,5\n2020,1.5,6\n")
    with pytest.raises(InputError, match=r"line 3, column 'a': '1.5' is not a whole number, but a part of the time"):
        read_series(path, time="a,b", values=["x"])
