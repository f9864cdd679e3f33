"""Lynx trapped in Canada, 1821 to 1934: counts with a cycle of ten years, learned by particles.

python examples/lynx.py [figure.png]
"""

import sys
from pathlib import Path

import jax
import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

import mcfo
from mcfo.inference import components

DATA = Path(__file__).parent / "data" / "lynx.csv"
HELD_OUT = 20
"""Years."""


def lynx() -> tuple[np.ndarray, np.ndarray]:
    """The counts and their years."""
    table = np.loadtxt(DATA, delimiter=",", skiprows=1)
    return table[:, 1], table[:, 0].astype(int)


def learn(known: np.ndarray, *, steps: int = 300):
    """Negative binomial counts around exp(level + cycle)."""
    return mcfo.fit(
        "structural", known, level="fixed", cycle="smooth", emission="negative-binomial", steps=steps, seeds=(0,)
    )


def main(figure: str | None = None) -> None:
    counts, years = lynx()
    fitted = learn(counts[:-HELD_OUT])
    model = fitted.model
    print(f"log-likelihood {fitted.evaluation.log_evidence:.1f}, by {fitted.evaluation.particles} particles")
    print(f"cycle: {float(model.cycle.period):.2f} years, damping {float(model.cycle.damping):.3f}")
    series = mcfo.Series.from_values(counts)
    scored = mcfo.evaluate_rolling(model, fitted.proposal, series, last=HELD_OUT, key=jax.random.key(0))
    for name, scores in (("model", scored.scores[0]), ("last year's count", scored.naive["naive"][0])):
        print(f"{name:18s} CRPS {scores.crps:6.1f} over {scores.forecasts} forecasts, {scores.coverage_90:.0%} in 90 %")
    if figure:
        parts = components(model, fitted.proposal, series, particles=20_000, paths=500).isel(series=0)
        _draw(figure, counts, years, parts, scored)


def _draw(figure: str, counts: np.ndarray, years: np.ndarray, parts, scored) -> None:
    page, axes = plt.subplots(2, 1, figsize=(9, 5.5), layout="constrained", sharex=True)
    quantiles = scored.series[0].quantiles[-HELD_OUT:, 0, :, 0]
    recent = years[-HELD_OUT:]
    axes[0].fill_between(recent, quantiles[:, 0], quantiles[:, -1], color="#08519c", alpha=0.25, lw=0, label="90 %")
    axes[0].plot(recent, quantiles[:, 2], color="#08519c", lw=1.2, label="one year ahead, median")
    axes[0].plot(years, counts, color="black", lw=0.8, marker=".", ms=4, label="observed")
    axes[0].set(ylabel="lynx a year", title=f"Lynx trapped; the last {HELD_OUT} years were held out")
    axes[0].legend(frameon=False, fontsize=8, loc="upper left", ncols=3)
    cycle = parts.sel(component="cycle")
    low, high = cycle["component_quantiles"].sel(quantile=[0.05, 0.95]).values.T
    axes[1].fill_between(years, np.exp(low), np.exp(high), color="#d94801", alpha=0.3, lw=0)
    axes[1].plot(years, np.exp(cycle["component_mean"]), color="#d94801", lw=1.2)
    axes[1].set(yscale="log", ylabel="factor", title="The cycle given all years, with 90 %")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0.01)
    page.savefig(figure, dpi=90)


if __name__ == "__main__":
    main(*sys.argv[1:])
