"""A model and a proposal of one's own: the nonlinear growth benchmark, whose filtering law has two modes.

python examples/growth.py [picture.png]
"""

import sys

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist

import mcfo


class Growth(mcfo.MarkovModel):
    """z_t = z/2 + 25 z/(1 + z²) + N(0, 10), x_t = z_t²/20 + N(0, 1). Kitagawa (1987)."""

    def initial(self, memory, inputs):
        return dist.Normal(jnp.zeros(1), 2.0).to_event(1)

    def transition(self, memory, inputs):
        return dist.Normal(memory / 2 + 25 * memory / (1 + memory**2), jnp.sqrt(10.0)).to_event(1)

    def emission(self, memory, latent, inputs):
        return dist.Normal(latent**2 / 20, 1.0).to_event(1)


class Shifted(mcfo.Proposal):
    """The prior, moved towards the root of 20 x_t on the prior's side, and wider."""

    pull: float = 0.5

    def encode(self, series):
        return jnp.sqrt(jnp.maximum(20 * series.observations, 0.0))

    def initial(self, prior, context):
        return self.step(prior, None, context)

    def step(self, prior, memory, context):
        mean = prior.mean + self.pull * (jnp.sign(prior.mean) * context - prior.mean)
        return dist.Normal(mean, 1.5 * jnp.sqrt(prior.variance)).to_event(1)


def main(picture: str | None = None) -> None:
    model = Growth()
    latents, observations = mcfo.simulate(model, 60, key=jax.random.key(2))
    values = np.array(observations)
    values[25:30] = np.nan
    series = mcfo.Series.from_values(values)
    sampler = mcfo.SMC(2000)
    for proposal in (mcfo.proposals.Bootstrap(), Shifted()):
        trace = sampler(model, proposal, series, key=jax.random.key(0), history=True)
        print(f"{type(proposal).__name__:10s} mean ESS {float(trace.record.ess.mean()):6.0f}   {mcfo.describe(trace)}")
    paths = mcfo.smc.backward_simulation(model, trace, series, 300, key=jax.random.key(1))
    if picture:
        _draw(picture, latents[:, 0], paths.latents[..., 0])


def _draw(picture: str, latents: jax.Array, paths: jax.Array) -> None:
    figure, axis = plt.subplots(figsize=(9, 3.5), layout="constrained")
    axis.plot(paths, color="#08519c", alpha=0.02, lw=1)
    axis.plot(latents, color="#d94801", lw=0, marker=".", label="true latent")
    axis.plot([], color="#08519c", label="smoothed paths")
    axis.axvspan(24.5, 29.5, color="0.92", lw=0, zorder=0, label="no observation")
    axis.set(xlabel="step", ylabel="latent", title="Growth model: paths given all observations")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, ncols=3, fontsize=8)
    figure.savefig(picture, dpi=150)


if __name__ == "__main__":
    main(*sys.argv[1:])
