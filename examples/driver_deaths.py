"""Drivers killed or seriously injured in Great Britain, 1969 to 1984: what the seat belt law of 1983 changed.

python examples/driver_deaths.py [figure.png]

Harvey and Durbin (1986), JRSS A 149, found a fall of 23.8 per cent with a larger model of the same data.
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import mcfo
from mcfo.inference import components

DATA = Path(__file__).parent / "data" / "driver_deaths.csv"
LAW = "1983-02"
"""The month from which on seat belts were compulsory."""


class Effect(NamedTuple):
    """The change of the number of drivers in per cent: its median and the ends of its 90 % interval."""

    low: float
    median: float
    high: float


def drivers() -> pd.DataFrame:
    """The drivers of each month, and whether the law was in force."""
    table = pd.read_csv(DATA)
    months = pd.PeriodIndex(table["month"], freq="M", name="month")
    law = (months >= LAW).astype(float)
    return pd.DataFrame({"drivers": table["drivers"].to_numpy(float), "law": law}, index=months)


def learn(frame: pd.DataFrame):
    """Level and season of the logarithm move; the law's weight is an unknown number with a diffuse start."""
    return mcfo.fit("structural", mcfo.read_series(frame, inputs=["law"]), season=12, transform="log")


def effect(fitted, frame: pd.DataFrame) -> Effect:
    """Return the effect of the law, given the whole series."""
    smoothed = fitted.smooth(mcfo.read_series(frame, inputs=["law"]))
    weight = smoothed["latent_quantiles"].sel(quantile=[0.05, 0.5, 0.95]).isel(series=0, time=-1, latent=-1)
    return Effect(*(100 * np.expm1(weight.values)).tolist())


def main(figure: str | None = None) -> None:
    frame = drivers()
    fitted = learn(frame)
    found = effect(fitted, frame)
    print(f"log-likelihood {fitted.evaluation.log_evidence:.3f}, exact")
    print(f"the law: {found.median:.1f} % drivers (90 %: {found.low:.1f} to {found.high:.1f})")
    without = mcfo.fit("structural", frame["drivers"], season=12, transform="log")
    steps = [100 * float(one.model.trend.level_scale) for one in (fitted, without)]
    print(f"standard deviation of the level's steps: {steps[0]:.2f} % a month, {steps[1]:.2f} % without the law")
    if figure:
        parts = components(fitted.model, fitted.proposal, mcfo.read_series(frame, inputs=["law"])).isel(series=0)
        _draw(figure, frame, parts, found)


def _draw(figure: str, frame: Any, parts, found: Effect) -> None:
    months = frame.index.to_timestamp().to_numpy()
    page, axes = plt.subplots(2, 1, figsize=(9, 5.5), layout="constrained", sharex=True, height_ratios=(2, 1))
    level, law = (parts.sel(component=name)["component_mean"].values for name in ("level", "regression"))
    low, high = parts.sel(component="level")["component_quantiles"].sel(quantile=[0.05, 0.95]).values.T
    axes[0].plot(months, frame["drivers"], color="black", lw=0.7, marker=".", ms=3, label="observed")
    axes[0].fill_between(months, np.exp(low + law), np.exp(high + law), color="#d94801", alpha=0.3, lw=0)
    axes[0].plot(months, np.exp(level + law), color="#d94801", lw=1.4, label="level and law, with 90 % of the level")
    after = law != 0
    axes[0].plot(months[after], np.exp(level[after]), color="#08519c", lw=1.2, ls="--", label="level without the law")
    axes[0].axvline(np.datetime64(LAW), color="0.6", lw=0.8, zorder=0)
    title = f"Seat belt law: {found.median:.0f} % drivers (90 %: {found.low:.0f} to {found.high:.0f})"
    axes[0].set(ylabel="drivers a month", title=title)
    axes[0].legend(frameon=False, fontsize=8, loc="lower left")
    season = parts.sel(component="season 12")
    low, high = season["component_quantiles"].sel(quantile=[0.05, 0.95]).values.T
    axes[1].fill_between(months, np.exp(low), np.exp(high), color="#d94801", alpha=0.3, lw=0)
    axes[1].plot(months, np.exp(season["component_mean"]), color="#d94801", lw=0.9)
    axes[1].set(ylabel="factor", title="Season, with 90 %")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0.01)
    page.savefig(figure, dpi=90)


if __name__ == "__main__":
    main(*sys.argv[1:])
