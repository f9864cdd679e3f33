"""Default fits reach the maximum that an independent optimizer finds; a fit that is cut short is told apart.

The study of all models takes an hour: `python tests/verify/default_fits.py results/verify/default_fits.csv`.
"""

import importlib.util
from pathlib import Path

import pytest

_PATH = Path(__file__).with_name("default_fits.py")


@pytest.fixture(scope="module")
def fits():
    spec = importlib.util.spec_from_file_location("default_fits", _PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assert_at_the_maximum(fits, rows):
    for row in rows:
        found = dict(zip(fits.HEADER, row, strict=True))
        assert float(found["gap"]) < fits.NEAR, found
        assert float(found["ess_share"]) > fits.LOW, found


@pytest.mark.ci
def test_a_default_fit_is_at_the_maximum_and_a_short_one_is_not(fits):
    options = {"seeds": (0,), "particles": 100, "evaluations": 60}
    assert_at_the_maximum(fits, fits.study("local-level nile", **options))
    with pytest.raises(AssertionError):
        assert_at_the_maximum(fits, fits.study("local-level nile", **options, steps=2))


@pytest.mark.verify
def test_every_default_fit_is_at_the_maximum(fits):
    for name in fits.CASES:
        assert_at_the_maximum(fits, fits.study(name))
