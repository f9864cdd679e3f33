"""Growth of the United States, 1959 to 2009: the regimes of a hidden Markov model, by its exact likelihood.

python examples/regimes.py [figure.png]

Needs statsmodels, which has the series and another filter of the same model: pip install "mcfo[examples]".
"""

import sys
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import statsmodels.api as sm

import mcfo


def growth() -> tuple[np.ndarray, np.ndarray]:
    """Quarterly growth of real GDP in per cent a year, and the time of each quarter in years."""
    table: Any = sm.datasets.macrodata.load_pandas().data
    return 400 * np.diff(np.log(table["realgdp"])), (table["year"] + (table["quarter"] - 1) / 4).to_numpy()[1:]


def statsmodels_likelihood(values: np.ndarray, model) -> float:
    """The log-likelihood of the same parameters, by a filter that shares no code."""
    stays, returns = np.asarray(model.chain.transition_probabilities)[:, 0]
    trusted = sm.tsa.MarkovRegression(values, k_regimes=2, switching_variance=True)
    means, scales = np.ravel(model.emissions.mean), np.ravel(model.emissions.standard_deviation)
    return float(trusted.loglike(np.array([stays, returns, *means, *scales**2])))


def main(figure: str | None = None) -> None:
    values, years = growth()
    fitted = mcfo.fit("hmm", values, states=2)
    model = fitted.model
    matrix = np.asarray(model.chain.transition_probabilities)
    print(f"log-likelihood {fitted.evaluation.log_evidence:.4f}, exact; ", end="")
    print(f"statsmodels at the same parameters {statsmodels_likelihood(values, model):.4f}")
    for k in range(2):
        mean, scale = float(model.emissions.mean[k, 0]), float(model.emissions.standard_deviation[k, 0])
        lasts = 1 / (1 - matrix[k, k])
        print(f"regime {k + 1}: mean {mean:.2f}, standard deviation {scale:.2f}, lasts {lasts:.0f} quarters")
    smoothed = fitted.smooth(values)
    probability = smoothed["latent_mean"].sel(latent="regime 2")[0].values
    ahead = fitted.forecast(values, 8)
    for step in (0, 7):
        low, high = ahead["observation_quantiles"].sel(quantile=[0.05, 0.95])[0, step, :, 0].values
        print(f"{step + 1} quarters ahead: 90 % from {low:.1f} to {high:.1f}")
    if figure:
        _draw(figure, values, years, probability, mcfo.viterbi(model, mcfo.Series.from_values(values)))


def _draw(figure: str, values: np.ndarray, years: np.ndarray, probability: np.ndarray, path) -> None:
    page, axes = plt.subplots(2, 1, figsize=(9, 5), layout="constrained", sharex=True)
    axes[0].plot(years, values, color="0.35", lw=0.9)
    axes[0].axhline(0, color="0.8", lw=0.6, zorder=0)
    axes[0].set(ylabel="% a year", title="Growth of real GDP, United States")
    axes[1].fill_between(years, probability, color="#08519c", alpha=0.3, lw=0, label="probability given all quarters")
    axes[1].step(years, np.asarray(path), where="mid", color="#d94801", lw=0.9, label="most probable path")
    axes[1].set(ylabel="turbulent regime", ylim=(-0.02, 1.02))
    axes[1].legend(frameon=False, fontsize=8, loc=(0.48, 0.4))
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0.01)
    page.savefig(figure, dpi=100)


if __name__ == "__main__":
    main(*sys.argv[1:])
