"""Data, level, components and forecast on the page of a run, from the file that a fit leaves there."""

import numpy as np
import pytest

from mcfo.data.outlook import FILE, Outlook, read_outlook, write_outlook
from mcfo.errors import InputError
from mcfo.reports.run_page import write_run_report
from support.runs import make_lines, make_results, make_seed, write_folder


def made_up(**changes):
    months = np.arange("2020-01", "2021-07", dtype="datetime64[M]").astype("datetime64[us]")
    about = {"name": "air <b>", "columns": ["passengers"], "x": months[:12], "coming": months[12:]}
    about |= {"values": np.arange(12.0)[:, None], "level_name": "level", "level": np.zeros((12, 3, 1))}
    about |= {"levels": np.array([0.05, 0.95]), "mean": np.zeros((6, 1)), "quantiles": np.zeros((6, 2, 1))}
    about |= {"names": ["level", "season 12"], "components": np.zeros((2, 12, 3)), "structural": True, "dated": True}
    return Outlook(**(about | changes))


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "run", lines=make_lines(0, steps=40), results=make_results(make_seed(0)))


def test_the_page_shows_data_level_forecast_and_components(folder):
    write_outlook(folder / FILE, made_up())
    page = write_run_report(folder).read_text()
    assert "The data of air &lt;b&gt;, the level given all of them" in page
    assert "the forecast of the next 6 steps" in page
    assert "The components given the whole series" in page
    for name in ("outlook", "components"):
        assert (folder / "figures" / f"{name}.png").stat().st_size > 5000
    write_outlook(folder / FILE, made_up(structural=False))
    assert "The components given" not in write_run_report(folder).read_text(), "states are no components"


def test_what_is_written_is_read_again(tmp_path):
    assert read_outlook(tmp_path / FILE) is None
    write_outlook(tmp_path / FILE, made_up())
    found = read_outlook(tmp_path / FILE)
    assert (found.name, found.names, found.dated) == ("air <b>", ["level", "season 12"], True)
    np.testing.assert_array_equal(found.coming, made_up().coming)


@pytest.mark.parametrize("change", [{"level": np.zeros((11, 3, 1))}, {"names": ["level"]}, {"mean": np.zeros((5, 1))}])
def test_a_damaged_file_is_refused_with_what_to_do(folder, change):
    write_outlook(folder / FILE, made_up(**change))
    with pytest.raises(InputError, match="Delete it, or write it again"):
        write_run_report(folder)
