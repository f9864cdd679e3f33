"""Series that many packages ship; examples/data/README.md says where they come from."""

from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent.parent.parent / "examples" / "data"


def _column(name):
    return np.loadtxt(FOLDER / name, delimiter=",", skiprows=1, usecols=1)


AIRLINE = _column("airline.csv")
"""Passengers of airlines in thousands, monthly from January 1949 (Box and Jenkins)."""
DRIVER_DEATHS = _column("driver_deaths.csv")
"""Drivers killed or seriously injured in Great Britain, monthly from January 1969 (Harvey and Durbin)."""
LYNX = _column("lynx.csv")
"""Lynx trapped in Canada, yearly from 1821 (Campbell and Walker)."""
