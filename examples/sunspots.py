"""Sunspot numbers as counts: a model of one's own with a hidden cycle, against a plain autoregression.

python examples/sunspots.py [picture.png]

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
import numpyro.distributions as dist
import statsmodels.api as sm

import mcfo

HELD_OUT, AHEAD = 66, 5
"""Years at the end that are not learned from, six cycles of them; and how far the forecasts go."""


class Cycle(mcfo.MarkovModel):
    """Overdispersed counts whose log-intensity turns: z_t = ρ R(2π / period) z_t-1 + N(0, σ²) in the plane.

    x_t ~ NegativeBinomial(mean exp(level + z_t[0]), concentration). Harvey (1989), chapter 2, for the cycle.
    """

    level: jax.Array
    raw_damping: jax.Array
    log_period: jax.Array
    log_scale: jax.Array
    log_concentration: jax.Array

    def __init__(self, *, level: float, period: float = 10.0, damping: float = 0.9, scale: float = 0.5):
        self.level = jnp.asarray(level, float)
        self.raw_damping = jnp.log(jnp.asarray(damping / (1 - damping), float))
        self.log_period = jnp.log(jnp.asarray(period, float))
        self.log_scale = jnp.log(jnp.asarray(scale, float))
        self.log_concentration = jnp.log(jnp.asarray(5.0))

    @property
    def damping(self) -> jax.Array:
        return jax.nn.sigmoid(self.raw_damping)

    @property
    def period(self) -> jax.Array:
        """Years of a turn."""
        return jnp.exp(self.log_period)

    def initial(self, memory, inputs):
        scale = jnp.exp(self.log_scale) / jnp.sqrt(1 - self.damping**2)
        return dist.Normal(jnp.zeros(2), scale).to_event(1)

    def transition(self, memory, inputs):
        angle = 2 * jnp.pi / self.period
        turned = jnp.stack(
            [
                jnp.cos(angle) * memory[0] + jnp.sin(angle) * memory[1],
                jnp.cos(angle) * memory[1] - jnp.sin(angle) * memory[0],
            ]
        )
        return dist.Normal(self.damping * turned, jnp.exp(self.log_scale)).to_event(1)

    def emission(self, memory, latent, inputs):
        mean = jnp.exp(self.level + latent[:1])
        return dist.NegativeBinomial2(mean, jnp.exp(self.log_concentration)).to_event(1)


def counts() -> tuple[np.ndarray, np.ndarray]:
    """Yearly sunspot numbers of 1700 to 2008, rounded, and the years."""
    table: Any = sm.datasets.sunspots.load_pandas().data
    return table["SUNACTIVITY"].round().to_numpy(int), table["YEAR"].to_numpy(int)


def learn(model: mcfo.Model, known: np.ndarray, *, steps: int = 400, particles: int = 200):
    """Maximum likelihood by Fisher's identity with a fixed lag."""
    return mcfo.fit(
        model,
        mcfo.proposals.Bootstrap(),
        [mcfo.Series.from_values(known)],
        objective=mcfo.objectives.bootstrap(particles, theta="fisher-lag-30"),
        steps=steps,
        learning_rate=0.02,
        average=0.3,
    )


def main(picture: str | None = None) -> None:
    values, years = counts()
    split = len(values) - HELD_OUT
    typical = float(np.log(values[:split].mean()))
    models = {
        "cycle, negative binomial": Cycle(level=typical - 0.3),
        "autoregression, Poisson": mcfo.models.PoissonCounts(level=typical, persistence=0.8, scale=0.5),
    }
    series, found = mcfo.Series.from_values(values), {}
    print(f"{HELD_OUT} held-out years, means over all origins")
    print(f"{'':26s} {'ahead':>5s} {'log score':>10s} {'CRPS':>7s} {'in 50 %':>8s} {'in 90 %':>8s}")
    for name, model in models.items():
        fitted = learn(model, values[:split])
        result = mcfo.evaluate_rolling(
            fitted.model, fitted.proposal, series, horizon=AHEAD, first=split + 1, key=jax.random.key(0)
        )
        found[name] = fitted.model, result
        for one in (result.scores[0], result.scores[-1]):
            print(
                f"{name:26s} {one.ahead:5d} {one.log_score:10.3f} {one.crps:7.2f} {one.coverage_50:8.1%} "
                f"{one.coverage_90:8.1%}"
            )
    model, _ = found["cycle, negative binomial"]
    print(f"A turn takes {float(model.period):.2f} years, and {float(model.damping):.3f} of it is left after one year.")
    if picture:
        _draw(picture, values, years, split, found)


def _draw(picture: str, values: np.ndarray, years: np.ndarray, split: int, found: dict) -> None:
    model, _ = found["cycle, negative binomial"]
    future = mcfo.inference.forecast_series(
        model, mcfo.proposals.Bootstrap(), mcfo.Series.from_values(values), steps=22, draws=4000, key=jax.random.key(2)
    )
    figure, (above, left) = plt.subplots(2, 1, figsize=(9, 6.2), layout="constrained")
    above.plot(years, values, color="black", lw=0.9, marker=".", ms=3, label="observed")
    coming = years[-1] + 1 + np.arange(22)
    low, quarter, _, three, high = np.asarray(future.quantiles((0.05, 0.25, 0.5, 0.75, 0.95)))[..., 0]
    above.fill_between(coming, low, high, color="#08519c", alpha=0.2, lw=0, label="90 %")
    above.fill_between(coming, quarter, three, color="#08519c", alpha=0.35, lw=0, label="50 %")
    above.plot(coming, future.mean[:, 0], color="#08519c", lw=1.6, label="expected")
    above.set(title="Sunspot numbers, and the two cycles to come", ylabel="a year")
    held_out = np.arange(split, len(values))
    for name, color in (("cycle, negative binomial", "#08519c"), ("autoregression, Poisson", "#d94801")):
        of_series = found[name][1].series[0]
        bands, when = np.asarray(of_series.quantiles[held_out, 0, :, 0]), years[held_out]
        left.fill_between(when, bands[:, 0], bands[:, 4], color=color, alpha=0.15, lw=0)
        left.plot(when, bands[:, 2], color=color, lw=1.5, label=f"{name}: median and 90 %")
    left.plot(years[split:], values[split:], color="black", lw=0, marker=".", ms=5, label="observed")
    left.set(title="Held out: each year forecast the year before", ylabel="a year", ylim=(0, 2 * values.max()))
    for axis in (above, left):
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0.01)
        axis.legend(frameon=False, ncols=4 if axis is above else 3, fontsize=8)
    figure.savefig(picture, dpi=150)


if __name__ == "__main__":
    main(*sys.argv[1:])
