"""The Nile at Aswan: maximum likelihood by a particle filter, beside the exact answer of the Kalman filter.

python examples/nile.py [picture.png]

Needs statsmodels, which has the series and the exact maximum: pip install "mcfo[examples]".
"""

import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import statsmodels.api as sm

import mcfo

INITIAL = (1000.0, 300.0**2)
"""Mean and variance of the level in 1871, the same in both."""
FIXED = ("model.initial_mean", "model.initial_noise", "model.transition_matrix", "model.emission_matrix")


class Maximum(NamedTuple):
    """Where statsmodels found the largest likelihood."""

    noise: float
    level: float
    log_likelihood: float


def flow() -> np.ndarray:
    """The flow of 1871 to 1970, in 10⁸ m³ a year."""
    table: Any = sm.datasets.nile.load_pandas().data
    return table["volume"].to_numpy(float)


def local_level(noise, level) -> mcfo.models.LinearGaussian:
    """x_t = z_t + N(0, noise), z_t = z_t-1 + N(0, level)."""
    return mcfo.models.LinearGaussian(
        initial_mean=INITIAL[0],
        initial_noise=INITIAL[1],
        transition_matrix=1.0,
        transition_noise=level,
        emission_matrix=1.0,
        emission_noise=noise,
    )


def variances(model, proposal=None) -> dict:
    """What is learned."""
    return {"noise": model.emission_noise.matrix[0, 0], "level": model.transition_noise.matrix[0, 0]}


def exact_maximum(values: np.ndarray) -> Maximum:
    """By statsmodels, with the same law of the first level."""
    model: Any = sm.tsa.UnobservedComponents(values, level="local level")  # pyright: ignore[reportArgumentType]
    model.ssm.initialize_known(np.array([INITIAL[0]]), np.array([[INITIAL[1]]]))
    model.ssm.loglikelihood_burn = 0
    found = model.fit(disp=False, method="nm", maxiter=2000, ftol=1e-10, xtol=1e-6)
    noise, level = np.asarray(found.params).tolist()
    return Maximum(noise, level, float(found.llf))


def learn(values: np.ndarray, *, steps: int = 600, particles: int = 300, seed: int = 0):
    """Ascends the likelihood along Fisher's identity; the answer is the mean over the second half of the steps."""
    start = local_level(noise=5000.0, level=10000.0)
    return mcfo.fit(
        start,
        mcfo.proposals.AffineGaussian.optimal(start),
        [mcfo.Series.from_values(values)],
        objective=mcfo.objectives.mcfo(particles, theta="fisher", phi="dreg"),
        steps=steps,
        learning_rate=0.03,
        average=0.5,
        fixed=FIXED,
        watch=variances,
        seeds=(seed,),
    )


def main(picture: str | None = None) -> None:
    values = flow()
    series = mcfo.Series.from_values(values)
    exact, fitted = exact_maximum(values), learn(values)
    found = {name: float(value) for name, value in variances(fitted.model).items()}
    log_likelihood = float(mcfo.kalman_filter(fitted.model, series).log_evidence)
    print(f"{'':12s} {'noise':>9s} {'level':>9s} {'exact log-likelihood':>21s}")
    print(f"{'mcfo':12s} {found['noise']:9.0f} {found['level']:9.0f} {log_likelihood:21.3f}")
    print(f"{'statsmodels':12s} {exact.noise:9.0f} {exact.level:9.0f} {exact.log_likelihood:21.3f}")
    trace = mcfo.SMC(2000)(
        fitted.model, mcfo.proposals.LocallyOptimal(fitted.model), series, key=jax.random.key(1), history=True
    )
    paths = mcfo.smc.backward_simulation(fitted.model, trace, series, 1000, key=jax.random.key(2))
    truth = mcfo.kalman_smoother(fitted.model, series)
    gap = float(jnp.max(jnp.abs(paths.mean() - truth.mean))) / np.ptp(values)
    print(f"Smoothed levels: at most {gap:.2%} of the range of the series from the exact ones.")
    if picture:
        _draw(picture, values, fitted, exact, paths.latents[..., 0], truth)


def _draw(picture: str, values: np.ndarray, fitted, exact: Maximum, paths: jax.Array, truth) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained", width_ratios=(1.5, 1))
    years = 1871 + np.arange(len(values))
    low, high = np.quantile(np.asarray(paths), [0.05, 0.95], axis=1)
    left.fill_between(years, low, high, color="#08519c", alpha=0.2, lw=0, label="90 % of smoothed paths")
    left.plot(years, np.asarray(paths).mean(axis=1), color="#08519c", lw=2, label="smoothed, particles")
    left.plot(years, truth.mean[:, 0], color="#d94801", lw=1.2, ls="--", label="smoothed, exact")
    left.plot(years, values, color="black", lw=0, marker=".", ms=5, label="observed")
    left.set(ylabel="10⁸ m³ a year", title="Flow of the Nile at Aswan")
    _draw_likelihood(right, values, fitted, exact)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8)
    figure.savefig(picture, dpi=150)


def _draw_likelihood(axis, values: np.ndarray, fitted, exact: Maximum) -> None:
    """The exact likelihood around its maximum, and the way there."""
    series = mcfo.Series.from_values(values)
    noise, level = np.geomspace(4000, 30000, 40), np.geomspace(200, 15000, 40)
    at = jax.jit(
        jax.vmap(
            jax.vmap(lambda r, q: mcfo.kalman_filter(local_level(r, q), series).log_evidence, (None, 0)), (0, None)
        )
    )
    below = exact.log_likelihood - np.asarray(at(noise, level))
    contours = axis.contour(level, noise, below, levels=[0.1, 0.5, 2, 5, 10, 20], colors="0.65", linewidths=0.8)
    axis.clabel(contours, fmt=lambda value: f"−{value:g}", fontsize=7)
    way = np.array([[line["watched"]["level"], line["watched"]["noise"]] for line in fitted.metrics])
    axis.plot(*way.T, color="#08519c", lw=1, alpha=0.8, label="learning")
    axis.plot(
        *(float(variances(fitted.model)[name]) for name in ("level", "noise")), "o", color="#08519c", label="mcfo"
    )
    axis.plot(exact.level, exact.noise, "x", color="#d94801", ms=8, mew=2, label="statsmodels")
    axis.set(xscale="log", yscale="log", xlabel="variance of the level", ylabel="variance of the noise")
    axis.set_title("Exact log-likelihood, below its maximum")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main(*sys.argv[1:])
