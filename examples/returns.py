"""The S&P 500, day by day: a stochastic volatility model with heavy tails, scored on five years that it has not seen.

python examples/returns.py [picture.png]

Needs the data of the package arch: pip install "mcfo[examples]".
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from arch.data import sp500
from scipy.stats import norm

import mcfo

HELD_OUT = 1258
"""Days, five years of them."""
YEAR = 252


def returns() -> tuple[np.ndarray, np.ndarray]:
    """Daily log-returns of 1999 to 2018 in per cent, and their dates."""
    prices = sp500.load()["Adj Close"]
    return 100 * np.diff(np.log(prices.to_numpy(float))), prices.index.to_numpy()[1:]


def learn(known: np.ndarray, *, steps: int = 300, particles: int = 100):
    """Maximum likelihood by Fisher's identity; the years are taken for series of their own, some at each step."""
    years = [mcfo.Series.from_values(known[max(0, end - YEAR) : end]) for end in range(len(known), 0, -YEAR)]
    model = mcfo.models.StochasticVolatility(level=float(np.log(known.var())), persistence=0.97, scale=0.2, degrees=8.0)
    return mcfo.fit(
        model,
        mcfo.proposals.Bootstrap(),
        years,
        objective=mcfo.objectives.bootstrap(particles, theta="fisher-lag-50"),
        steps=steps,
        batch=5,
        learning_rate=0.02,
        schedule="cosine",
    )


def main(picture: str | None = None) -> None:
    values, dates = returns()
    split = len(values) - HELD_OUT
    fitted = learn(values[:split])
    model, degrees = fitted.model, fitted.model.returns.degrees
    assert degrees is not None
    print(
        f"volatility of a typical day {float(jnp.exp(model.log_variance.level[0] / 2)):.2f} %, persistence "
        f"{float(model.log_variance.persistence[0]):.4f}, scale {float(model.log_variance.scale[0]):.3f}, degrees of "
        f"freedom {float(degrees[0]):.1f}"
    )
    result = mcfo.evaluate_rolling(
        model, fitted.proposal, mcfo.Series.from_values(values), first=split + 1, key=jax.random.key(0)
    )
    scores = result.scores[0]
    print(f"{scores.forecasts} held-out days, forecast one day ahead:")
    print(f"{'':28s} {'log score':>10s} {'in 50 %':>8s} {'in 90 %':>8s}")
    for name, found in (
        ("stochastic volatility", (scores.log_score, scores.coverage_50, scores.coverage_90)),
        ("Gaussian, constant variance", constant_variance(values, split)),
    ):
        print("{:28s} {:10.4f} {:8.1%} {:8.1%}".format(name, *found))
    if picture:
        _draw(picture, values, dates, split, model, result)


def constant_variance(values: np.ndarray, split: int) -> tuple[float, float, float]:
    """The log score of a Gaussian with the moments of the days before, and what falls into its half and nine tenths."""
    law: Any = norm(values[:split].mean(), values[:split].std())
    distance = np.abs(law.cdf(values[split:]) - 0.5)
    return float(law.logpdf(values[split:]).mean()), float(np.mean(distance < 0.25)), float(np.mean(distance < 0.45))


def _draw(picture: str, values: np.ndarray, dates: np.ndarray, split: int, model, result) -> None:
    series = mcfo.Series.from_values(values)
    trace = mcfo.SMC(500)(model, mcfo.proposals.Bootstrap(), series, key=jax.random.key(1), history=True)
    laws = mcfo.smc.fixed_lag(trace, 20)
    mean, spread = laws.mean()[:, 0], jnp.sqrt(laws.variance()[:, 0])
    yearly = np.sqrt(YEAR)
    figure, axes = plt.subplots(3, 1, figsize=(9, 8), layout="constrained", height_ratios=(1, 1.1, 1))
    axes[0].plot(dates, values, color="0.35", lw=0.4)
    axes[0].set(ylabel="return, %", title="S&P 500, daily")
    low, center, high = (yearly * np.exp(np.asarray(mean + sign * 1.645 * spread) / 2) for sign in (-1, 0, 1))
    axes[1].fill_between(dates, low, high, color="#08519c", alpha=0.3, lw=0, label="90 %")
    axes[1].plot(dates, center, color="#08519c", lw=0.9, label="volatility")
    axes[1].axvspan(dates[split], dates[-1], color="0.93", lw=0, zorder=0, label="held out")
    axes[1].set(yscale="log", ylabel="% a year", title="Volatility given the days up to 20 later")
    axes[1].set_yticks([5, 10, 20, 40, 80], ["5", "10", "20", "40", "80"])
    axes[1].minorticks_off()
    shown = slice(len(values) - YEAR, None)
    quantiles = np.asarray(result.series[0].quantiles[shown, 0, :, 0])
    axes[2].fill_between(
        dates[shown], quantiles[:, 0], quantiles[:, 4], color="#08519c", alpha=0.25, lw=0, label="90 %"
    )
    outside = np.abs(result.series[0].pit[shown, 0, 0] - 0.5) > 0.45
    axes[2].plot(dates[shown], values[shown], ".", color="black", ms=3, label="observed")
    axes[2].plot(dates[shown][outside], values[shown][outside], "o", mfc="none", mec="#d94801", ms=5, label="outside")
    coverage = result.scores[0].coverage_90
    axes[2].set_title(f"One day ahead, the last year: of all {HELD_OUT} held-out days {coverage:.1%} fell inside")
    axes[2].set_ylabel("return, %")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0.01)
    for axis in axes[1:]:
        axis.legend(frameon=False, ncols=3, fontsize=8)
    figure.savefig(picture, dpi=150)


if __name__ == "__main__":
    main(*sys.argv[1:])
