"""Series that many packages ship; examples/data/README.md says where they come from."""

from pathlib import Path

import numpy as np
import statsmodels.api as sm

FOLDER = Path(__file__).parent.parent.parent / "examples" / "data"


def _column(name):
    return np.loadtxt(FOLDER / name, delimiter=",", skiprows=1, usecols=1)


AIRLINE = _column("airline.csv")
"""Passengers of airlines in thousands, monthly from January 1949 (Box and Jenkins)."""
DRIVER_DEATHS = _column("driver_deaths.csv")
"""Drivers killed or seriously injured in Great Britain, monthly from January 1969 (Harvey and Durbin)."""
LYNX = _column("lynx.csv")
"""Lynx trapped in Canada, yearly from 1821 (Campbell and Walker)."""


def _co2():
    # 1958 has gaps.
    return sm.datasets.co2.load_pandas().data["co2"].resample("MS").mean().to_numpy()


MAXIMA = {
    "nile level": (
        lambda: sm.datasets.nile.load_pandas().data["volume"].to_numpy(float),
        {},
        {"level": "local level"},
    ),
    "nile trend": (
        lambda: sm.datasets.nile.load_pandas().data["volume"].to_numpy(float),
        {"trend": "local"},
        {"level": "local linear trend"},
    ),
    "airline": (
        lambda: AIRLINE,
        {"trend": "local", "season": 12, "season_kind": "dummy", "transform": "log"},
        {"level": "local linear trend", "seasonal": 12},
    ),
    "driver deaths": (
        lambda: DRIVER_DEATHS,
        {"season": 12, "season_kind": "dummy", "transform": "log"},
        {"level": "local level", "seasonal": 12},
    ),
    "co2": (
        _co2,
        {"trend": "local", "season": 12, "season_kind": "dummy"},
        {"level": "local linear trend", "seasonal": 12},
    ),
}
"""Series, our words and the options of statsmodels for the same model."""
