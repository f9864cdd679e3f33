"""Passengers of airlines, 1949 to 1960: trend and season by the exact likelihood, and the last two years forecast.

python examples/airline.py [figure.png]
"""

import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import mcfo
from mcfo.inference import components

DATA = Path(__file__).parent / "data" / "airline.csv"
HELD_OUT = 24
"""Months."""


def passengers() -> pd.Series:
    """Thousands a month."""
    table = pd.read_csv(DATA)
    return pd.Series(table["passengers"].to_numpy(float), pd.PeriodIndex(table["month"], freq="M"), name="passengers")


def learn(known: pd.Series):
    """A local linear trend and a season of the logarithm."""
    return mcfo.fit("structural", known, trend="local", season=12, transform="log")


def main(figure: str | None = None) -> None:
    values: Any = passengers()
    known, held_out = values[:-HELD_OUT], values[-HELD_OUT:].to_numpy()
    fitted = learn(known)
    print(f"log-likelihood {fitted.evaluation.log_evidence:.3f}, exact")
    model = fitted.model
    for name, scale in (("level", model.trend.level_scale), ("season", model.seasons[0].scale)):
        print(f"{name}: {100 * float(scale):.2f} % a month")
    ahead = fitted.forecast(known, HELD_OUT)
    low, center, high = ahead["observation_quantiles"].sel(quantile=[0.05, 0.5, 0.95])[0, ..., 0].values.T
    inside = np.mean((low <= held_out) & (held_out <= high))
    before = known.to_numpy()[-12:]
    print(f"{HELD_OUT} months from one origin: mean error {np.mean(np.abs(center - held_out)):.1f} thousand, ", end="")
    print(f"{inside:.0%} inside 90 %; the same month of 1958: {np.mean(np.abs(np.tile(before, 2) - held_out)):.1f}")
    if figure:
        _draw(figure, values, (low, center, high), components(model, fitted.proposal, known).isel(series=0))


def _draw(figure: str, values: Any, forecast, parts) -> None:
    dates = values.index.to_timestamp().to_numpy()
    known, ahead = dates[:-HELD_OUT], dates[-HELD_OUT:]
    page, axes = plt.subplots(3, 1, figsize=(9, 7), layout="constrained", sharex=True, height_ratios=(1.5, 1, 1))
    axes[0].fill_between(ahead, forecast[0], forecast[2], color="#08519c", alpha=0.25, lw=0, label="forecast, 90 %")
    axes[0].plot(ahead, forecast[1], color="#08519c", lw=1.2, label="forecast, median")
    axes[0].plot(dates, values.to_numpy(), color="black", lw=0.8, marker=".", ms=3, label="observed")
    axes[0].set(ylabel="thousands a month", title="Airline passengers; the last two years were held out")
    axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    for axis, name, title in ((axes[1], "level", "Level"), (axes[2], "season 12", "Season")):
        one = parts.sel(component=name)
        low, high = one["component_quantiles"].sel(quantile=[0.05, 0.95]).values.T
        axis.fill_between(known, np.exp(low), np.exp(high), color="#d94801", alpha=0.3, lw=0)
        axis.plot(known, np.exp(one["component_mean"]), color="#d94801", lw=1)
        axis.set_title(f"{title}, with 90 %")
    axes[1].set_ylabel("thousands a month")
    axes[2].set_ylabel("factor")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0.01)
    page.savefig(figure, dpi=90)


if __name__ == "__main__":
    main(*sys.argv[1:])
