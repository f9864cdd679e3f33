"""Ours: filters, learning steps of the linear Gaussian model, and the steps of the pendulum and of the VRNN."""

import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from serving import COEFFICIENT, THREADS, Prepared, compile_filter, observations, serve, temporary_bytes

import mcfo
from mcfo.gradients.rules import DEVICES
from mcfo.learning.batch_gradients import mean_over_devices
from mcfo.learning.devices import build_mesh

if THREADS > 1:
    mcfo.use_every_core(THREADS)
sys.path.append(str(Path(__file__).parents[1]))

SCHEMES = {
    "systematic": mcfo.resampling.Systematic,
    "stratified": mcfo.resampling.Stratified,
    "multinomial": mcfo.resampling.Multinomial,
    "residual": mcfo.resampling.Residual,
}
OBJECTIVES = {
    "mcfo-smc": lambda workload: mcfo.objectives.mcfo(workload["particles"]),
    "mcfo-pimh": lambda workload: mcfo.objectives.mcfo(workload["particles"], sweeps=workload["sweeps"]),
    # Resampled at every step, as the others are: so that a step of each does the same work forwards.
    "fivo": lambda workload: mcfo.objectives.fivo(workload["particles"], criterion=mcfo.resampling.Always()),
}


def model():
    return mcfo.models.LinearGaussian.scalar(COEFFICIENT, 1.0, initial_mean=0.0)


def make_series(values):
    return mcfo.stack([mcfo.Series.from_values(np.asarray(row)[:, None], series_id=n) for n, row in enumerate(values)])


def prepare_filter(workload):
    sampler = mcfo.SMC(workload["particles"], SCHEMES[workload["scheme"]](), mcfo.resampling.Always())
    values = observations(workload["series"], workload["steps"])
    batch = make_series(values)

    def total(values, key):
        def one(series):
            return sampler(model(), mcfo.proposals.Bootstrap(), series, key=key).log_evidence

        given = eqx.tree_at(lambda s: s.observations, batch, values[..., None])
        if len(values) == 1:
            return one(jax.tree.map(lambda array: array[0], given))
        return jnp.sum(jax.vmap(one)(given))

    return compile_filter(total, values)


def prepare_learn(workload):
    objective = OBJECTIVES[workload["objective"]](workload)
    batch = make_series(observations(workload["series"], workload["steps"]))
    both = model(), mcfo.proposals.AffineGaussian.optimal(model())

    def step(both, batch, seed):
        def loss(both):
            return objective.loss(*both, batch, key=jax.random.key(seed))[0]

        found = jax.value_and_grad(loss)(both)
        return mean_over_devices(found) if THREADS > 1 else found

    if THREADS > 1:
        mesh, replicated, divided = build_mesh(THREADS, DEVICES), PartitionSpec(), PartitionSpec(DEVICES)
        specs = replicated, divided, replicated
        step = jax.shard_map(step, mesh=mesh, in_specs=specs, out_specs=replicated, check_vma=False)
        both = jax.device_put(both, NamedSharding(mesh, replicated))
        batch = jax.device_put(batch, NamedSharding(mesh, divided))
    compiled = jax.jit(step).lower(both, batch, np.int32(0)).compile()

    def call(seed):
        # Read as NumPy's: to take an element of JAX's array would be a program of its own.
        loss, (of_model, of_proposal) = jax.block_until_ready(compiled(both, batch, np.int32(seed)))
        return {
            "log_evidence": -workload["series"] * float(loss),
            "model gradient": np.asarray(of_model.transition_matrix).item(),
            "proposal gradient": np.asarray(of_proposal.latent_weight).item(),
        }

    return Prepared(call, temporary_bytes(compiled))


def prepare_pendulum(workload):
    import pendulum

    both, data = pendulum.networks(), pendulum.batch()
    objective = mcfo.objectives.mcfo(workload["particles"])
    compiled = pendulum.gradient.lower(objective, both, data, jax.random.key(0)).compile()

    def call(seed):
        jax.block_until_ready(compiled(objective, both, data, jax.random.key(seed)))
        return {}

    return Prepared(call, temporary_bytes(compiled.compiled))


def prepare_vrnn(workload):
    import vrnn

    update = vrnn.updates("mcfo", workload["series"], vrnn.networks(), vrnn.rolls(), THREADS)

    def call(seed):
        jax.block_until_ready(update())
        return {}

    return Prepared(call)


FAMILIES = {
    "filter": prepare_filter,
    "learn": prepare_learn,
    "pendulum": prepare_pendulum,
    "vrnn": prepare_vrnn,
}


if __name__ == "__main__":
    serve(lambda workload: FAMILIES[workload["family"]](workload), "mcfo", "jax", "jaxlib", "numpyro", "equinox")
