"""Carbon dioxide over Mauna Loa, week by week: 59 gaps filled, and three years forecast that were held out.

python examples/co2.py [picture.png]

Needs statsmodels for the series: pip install "mcfo[examples]".
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import statsmodels.api as sm

import mcfo

HELD_OUT = 156
"""Weeks, three years of them."""
WEEKS = 365.25 / 7
FIXED = ("model.initial_mean", "model.initial_noise", "model.emission_matrix")


def concentrations() -> tuple[np.ndarray, np.ndarray]:
    """Parts per million of 1958 to 2001, NaN in the weeks without a value, and their dates."""
    table: Any = sm.datasets.co2.load_pandas().data
    return table["co2"].to_numpy(float), table.index.to_numpy()


def regressors(count: int) -> np.ndarray:
    """The inputs of each week: a parabola, and three harmonics of the year."""
    weeks = np.arange(count)
    decades = weeks / (10 * WEEKS)
    angles = 2 * np.pi * np.outer(weeks / WEEKS, [1, 2, 3])
    return np.column_stack([decades, decades**2, np.cos(angles), np.sin(angles)])


def start(values: np.ndarray, inputs: np.ndarray) -> mcfo.models.LinearGaussian:
    """Trend and seasons by least squares; around them an autoregression, seen through noise."""
    known = ~np.isnan(values)
    design = np.column_stack([np.ones(len(inputs)), inputs])[known]
    coefficients, *_ = np.linalg.lstsq(design, values[known], rcond=None)
    variance = float(np.var(values[known] - design @ coefficients))
    return mcfo.models.LinearGaussian(
        initial_mean=0.0,
        initial_noise=variance,
        transition_matrix=0.9,
        transition_noise=0.1 * variance,
        emission_matrix=1.0,
        emission_noise=0.5 * variance,
        emission_offset=coefficients[:1],
        emission_inputs=coefficients[None, 1:],
    )


def learn(values: np.ndarray, inputs: np.ndarray, *, steps: int = 150, particles: int = 50):
    """Maximum likelihood by Fisher's identity with a fixed lag; the proposal is the best one for the start."""
    model = start(values, inputs)
    return mcfo.fit(
        model,
        mcfo.proposals.LocallyOptimal(model),
        [mcfo.Series.from_values(values, inputs=inputs)],
        objective=mcfo.objectives.mcfo(particles, theta="fisher-lag-30"),
        steps=steps,
        learning_rate=0.02,
        schedule="cosine",
        fixed=(*FIXED, "proposal"),
    )


def main(picture: str | None = None) -> None:
    values, dates = concentrations()
    inputs, split = regressors(len(values)), len(values) - HELD_OUT
    series = mcfo.Series.from_values(values[:split], inputs=inputs[:split])
    fitted = learn(values[:split], inputs[:split])
    model, proposal = fitted.model, mcfo.proposals.LocallyOptimal(fitted.model)
    trace = mcfo.SMC(500)(model, proposal, series, key=jax.random.key(0), history=True)
    before = start(values[:split], inputs[:split])
    for name, one in (("before", before), ("after learning", model)):
        print(f"exact log-likelihood {name:15s} {float(mcfo.kalman_filter(one, series).log_evidence):10.2f}")
    print(f"by {trace.particle_count} particles {'':19s} {float(trace.log_evidence):10.2f}")
    paths = mcfo.smc.backward_simulation(model, trace, series, 200, key=jax.random.key(1)).latents
    gaps = np.isnan(values[:split])
    exact = np.asarray(mcfo.kalman_smoother(model, series).mean)[:, 0]
    missed = np.abs(np.asarray(paths).mean(axis=1)[:, 0] - exact)[gaps]
    print(f"{gaps.sum()} missing weeks filled, at most {missed.max():.3f} ppm from the exact smoother.")
    future = mcfo.inference.forecast_series(
        model, proposal, series, steps=HELD_OUT, draws=1000, inputs=inputs[split:], key=jax.random.key(2)
    )
    low, high = np.asarray(future.quantiles((0.05, 0.95)))[..., 0]
    inside = np.mean((values[split:] >= low) & (values[split:] <= high))
    error = np.sqrt(np.mean((np.asarray(future.mean)[:, 0] - values[split:]) ** 2))
    print(f"{HELD_OUT} weeks forecast from one origin: RMSE {error:.2f} ppm, {inside:.1%} inside of 90 %.")
    if picture:
        drawn = filled(model, jnp.asarray(inputs[:split]), paths, key=jax.random.key(3))
        _draw(picture, values, dates, split, drawn, future)


def filled(model: mcfo.models.LinearGaussian, inputs: jax.Array, paths: jax.Array, *, key: jax.Array) -> np.ndarray:
    """What would have been measured, for every smoothed path."""
    means = jax.vmap(lambda latents, now: jax.vmap(lambda z: model.emission_mean(z, now))(latents))(paths, inputs)
    noise = jnp.sqrt(model.emission_noise.matrix[0, 0]) * jax.random.normal(key, means.shape)
    return np.asarray(means + noise)[..., 0]


def _draw(picture: str, values: np.ndarray, dates: np.ndarray, split: int, drawn: np.ndarray, future) -> None:
    figure, axes = plt.subplot_mosaic("AA;BC", figsize=(10, 6.5), layout="constrained")
    axes["A"].plot(dates, values, color="black", lw=0.8)
    axes["A"].axvspan(dates[split], dates[-1], color="0.92", lw=0, zorder=0)
    axes["A"].set_title("CO₂ over Mauna Loa; gray: held out")
    early = slice(0, 340)
    low, high = np.quantile(drawn[early], [0.05, 0.95], axis=1)
    axes["B"].fill_between(dates[early], low, high, color="#08519c", alpha=0.25, lw=0, label="90 %")
    axes["B"].plot(dates[early], drawn[early].mean(axis=1), color="#08519c", lw=1, label="smoothed")
    axes["B"].plot(dates[early], values[early], ".", color="black", ms=3, label="observed")
    for week in np.flatnonzero(np.isnan(values[early])):
        axes["B"].axvline(dates[week], color="#d94801", alpha=0.25, lw=1.6, zorder=0)
    axes["B"].set_title("Where weeks are missing (orange)")
    low, quarter, three, high = np.asarray(future.quantiles((0.05, 0.25, 0.75, 0.95)))[..., 0]
    axes["C"].fill_between(dates[split:], low, high, color="#08519c", alpha=0.2, lw=0, label="90 %")
    axes["C"].fill_between(dates[split:], quarter, three, color="#08519c", alpha=0.35, lw=0, label="50 %")
    axes["C"].plot(dates[split - 60 :], values[split - 60 :], ".", color="black", ms=3, label="observed")
    axes["C"].set_title("Three years ahead, from one origin")
    for axis in axes.values():
        axis.set_ylabel("ppm")
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0.01)
    for name in "BC":
        axes[name].legend(frameon=False, fontsize=8, loc="upper left")
        for label in axes[name].get_xticklabels():
            label.set(rotation=30, ha="right")
    figure.savefig(picture, dpi=150)


if __name__ == "__main__":
    main(*sys.argv[1:])
