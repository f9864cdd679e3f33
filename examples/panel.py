"""Investment of eleven firms, 1935 to 1954: one model for all, and the last four years of each forecast.

python examples/panel.py [figure.png]

Needs statsmodels, which has the data of Grunfeld (1958): pip install "mcfo[examples]".
"""

import sys
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import statsmodels.api as sm

import mcfo

HELD_OUT = 4
"""Years."""


def panel() -> pd.DataFrame:
    """Investment in millions of dollars, and the logarithm of the firm's value, with an index of firms and years."""
    table: Any = sm.datasets.grunfeld.load_pandas().data
    table = table.assign(year=table["year"].astype(int), value=np.log(table["value"]))
    return table.set_index(["firm", "year"])[["invest", "value"]]


def learn(known: Any):
    """Each firm has a level of its own; all share the scales and the weight of the firm's value."""
    return mcfo.fit("structural", known, transform="log", weights="parameter")


def main(figure: str | None = None) -> None:
    frame: Any = panel()
    whole = mcfo.read_series(frame, inputs=["value"])
    first = frame.index.get_level_values("year").max() - HELD_OUT
    known = mcfo.read_series(frame[frame.index.get_level_values("year") <= first], inputs=["value"])
    fitted = learn(known)
    model = fitted.model
    print(f"log-likelihood {fitted.evaluation.log_evidence:.3f}, exact, of {len(known.names)} firms")
    print(f"value: a firm worth 1 % more invests {float(model.input_weights[0]):.2f} % more")
    scored = mcfo.evaluate_rolling(model, fitted.proposal, whole.series_list, last=HELD_OUT)
    for name, scores in (("model", scored.scores[0]), ("last year's value", scored.naive["naive"][0])):
        print(f"{name:18s} CRPS {scores.crps:6.2f} over {scores.forecasts} forecasts, {scores.coverage_90:.0%} in 90 %")
    if figure:
        _draw(figure, whole, scored)


def _draw(figure: str, whole: Any, scored: Any) -> None:
    page, axes = plt.subplots(3, 4, figsize=(10, 6.5), layout="constrained", sharex=True)
    for index, (axis, name) in enumerate(zip(axes.flat, whole.names, strict=False)):
        years, values = whole.moments[index], whole.series_list[index].values()[:, 0]
        quantiles = scored.series[index].quantiles[-HELD_OUT:, 0, :, 0]
        axis.fill_between(
            years[-HELD_OUT:], quantiles[:, 0], quantiles[:, -1], color="#08519c", alpha=0.25, lw=0, label="90 %"
        )
        axis.plot(years[-HELD_OUT:], quantiles[:, 2], color="#08519c", lw=1.2, label="one year ahead")
        axis.plot(years, values, color="black", lw=0.8, marker=".", ms=3, label="observed")
        axis.set_title(name, fontsize=9)
        axis.set_ylim(0)
    axes.flat[-1].axis("off")
    axes.flat[-1].legend(*axes.flat[0].get_legend_handles_labels(), frameon=False, fontsize=9, loc="center")
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    page.suptitle("Investment, millions of dollars a year; the last four years were held out", fontsize=11)
    page.savefig(figure, dpi=90)


if __name__ == "__main__":
    main(*sys.argv[1:])
