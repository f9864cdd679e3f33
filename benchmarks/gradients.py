"""Time and memory of a gradient, by how it is computed. Run: python benchmarks/gradients.py

Times are medians of interleaved repeats in one run and are printed as ratios, because machines are noisy. Memory is the
peak of a process of its own that runs the step, and what XLA plans to use.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from rich.console import Console
from rich.table import Table

import mcfo
from mcfo.objectives import Accumulated, Reverse

METHODS = {
    "accumulated": lambda particles: mcfo.objectives.mcfo(particles, backward=Accumulated(1)),
    "batched": lambda particles: mcfo.objectives.mcfo(particles, backward=Accumulated(10**6)),
    "AESMC": lambda particles: mcfo.objectives.aesmc(particles),
    "AESMC, checkpointed": lambda particles: mcfo.objectives.aesmc(particles, backward=Reverse(checkpoint=True)),
}


class Images(mcfo.MarkovModel):
    """A network from three latents to 1024 pixels, the size of the paper's pendulum."""

    dynamics: eqx.nn.MLP
    pixels: eqx.nn.MLP

    def __init__(self, *, key):
        first, second = jax.random.split(key)
        self.dynamics = eqx.nn.MLP(3, 6, 64, 2, key=first)
        self.pixels = eqx.nn.MLP(3, 1024, 64, 2, key=second)

    def initial(self, memory, inputs):
        return dist.Normal(jnp.zeros(3), 1.0).to_event(1)

    def transition(self, memory, inputs):
        return _gaussian(self.dynamics(memory))

    def emission(self, memory, latent, inputs):
        return dist.Bernoulli(logits=self.pixels(latent)).to_event(1)


class Reading(mcfo.Proposal):
    """An encoder of the image, and a network from it and the last latent to the next."""

    encoder: eqx.nn.MLP
    decide: eqx.nn.MLP

    def __init__(self, *, key):
        first, second = jax.random.split(key)
        self.encoder = eqx.nn.MLP(1024, 32, 64, 1, key=first)
        self.decide = eqx.nn.MLP(35, 6, 64, 2, key=second)

    def encode(self, series):
        return jax.vmap(self.encoder)(series.observations)

    def initial(self, prior, context):
        return self.step(prior, jnp.zeros(3), context)

    def step(self, prior, memory, context):
        return _gaussian(self.decide(jnp.concatenate([memory, context])))


def _gaussian(outputs):
    return dist.Normal(outputs[:3], jax.nn.softplus(outputs[3:]) + 0.01).to_event(1)


def problem(kind, series_list, steps):
    """A model, a proposal and a batch."""
    random = np.random.default_rng(0)
    if kind == "images":
        first, second = jax.random.split(jax.random.key(0))
        values = (random.random((series_list, steps, 1024)) < 0.5).astype(np.float32)
        model, proposal = Images(key=first), Reading(key=second)
    else:
        values = random.normal(size=(series_list, steps, 1)).astype(np.float32)
        model = mcfo.models.LinearGaussian.scalar(0.9, 1.2)
        proposal = mcfo.proposals.AffineGaussian.optimal(model)
    return model, proposal, mcfo.stack([mcfo.Series.from_values(one) for one in values])


@eqx.filter_jit
def gradient(objective, model, proposal, batch, key):
    return eqx.filter_grad(lambda both: objective.loss(*both, batch, key=key), has_aux=True)((model, proposal))[0]


def times(console, repeats):
    table = Table(title="Time of a step, as a ratio to the accumulated gradient", caption="median of interleaved runs")
    for title in ("model", "series", "steps", "particles", "accumulated, ms", *list(METHODS)[1:]):
        table.add_column(title, justify="right")
    cases = [
        ("linear", 10, 50, 10),
        ("linear", 10, 50, 100),
        ("linear", 10, 50, 1000),
        ("linear", 100, 50, 1000),
        ("linear", 1, 1000, 100),
        ("images", 5, 20, 10),
        ("images", 5, 20, 100),
    ]
    for kind, series_list, steps, particles in cases:
        arguments = problem(kind, series_list, steps)
        spent = {name: [] for name in METHODS}
        for repeat in range(repeats + 1):
            for name, method in METHODS.items():
                begun = time.perf_counter()
                jax.block_until_ready(gradient(method(particles), *arguments, jax.random.key(repeat)))
                if repeat:  # the first one compiles
                    spent[name].append(time.perf_counter() - begun)
        medians = [float(np.median(one)) for one in spent.values()]
        ratios = [f"{median / medians[0]:.2f}" for median in medians[1:]]
        table.add_row(kind, str(series_list), str(steps), str(particles), f"{1e3 * medians[0]:.1f}", *ratios)
    console.print(table)


def peak(name, steps, series_list, particles):
    """Megabytes that one gradient needs: of the whole process, and as XLA plans them."""
    arguments = problem("linear", series_list, steps)
    objective = METHODS[name](particles)
    plan = gradient.lower(objective, *arguments, jax.random.key(0)).compile().compiled.memory_analysis()
    planned = plan.temp_size_in_bytes + plan.argument_size_in_bytes + plan.output_size_in_bytes
    jax.block_until_ready(gradient(objective, *arguments, jax.random.key(0)))
    return {"process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "planned": planned / 1e6}


def memory(console, series_list, particles):
    table = Table(
        title=f"Memory of a gradient, MB: {series_list} series, {particles} particles",
        caption="process: peak of the whole process, JAX and compiler included. planned: arguments, results and "
        "temporaries of the compiled step.",
    )
    for title in ("", "process T=200", "T=20000", "ratio", "planned T=200", "T=20000", "ratio"):
        table.add_column(title, justify="right")
    for name in METHODS:
        used = []
        for steps in (200, 20_000):
            command = [sys.executable, __file__, "--peak", name, str(steps), str(series_list), str(particles)]
            result = subprocess.run(command, capture_output=True, text=True, check=True)
            used.append(json.loads(result.stdout.splitlines()[-1]))
        cells = []
        for what in ("process", "planned"):
            short, long = (one[what] for one in used)
            cells += [f"{short:.0f}", f"{long:.0f}", f"{long / short:.2f}"]
        table.add_row(name, *cells)
    console.print(table)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15, help="timed runs of each method")
    parser.add_argument("--series", type=int, default=4, help="series of the memory table")
    parser.add_argument("--particles", type=int, default=1000, help="particles of the memory table")
    parser.add_argument("--peak", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        name, *numbers = options.peak
        print(json.dumps(peak(name, *map(int, numbers))))
        return
    console = Console()
    memory(console, options.series_list, options.particles)
    times(console, options.repeats)


if __name__ == "__main__":
    main()
