"""cuthbert: its particle filter, with the resampling of cuthbertlib as it comes (a numba callback on CPUs)."""

import importlib

import jax
import jax.numpy as jnp
from cuthbert import filter as run_filter
from cuthbert.smc import particle_filter
from serving import COEFFICIENT, compile_filter, observations, serve


def prepare(workload):
    scheme = importlib.import_module(f"cuthbertlib.resampling.{workload['scheme']}")
    filter_ = particle_filter.build_filter(
        # From zero the first move is the initial law.
        init_sample=lambda key: jnp.zeros(()),
        propagate_sample=lambda key, latent, value: COEFFICIENT * latent + jax.random.normal(key),
        log_potential=lambda before, latent, value: jax.scipy.stats.norm.logpdf(value, latent),
        n_filter_particles=workload["particles"],
        resampling_fn=scheme.resampling,
    )

    def log_evidence(values, key):
        first, rest = jax.random.split(key)
        states = run_filter(filter_, values, filter_.init_prepare(key=first), key=rest)
        return states.log_normalizing_constant[-1]

    def total(values, key):
        if len(values) == 1:
            return log_evidence(values[0], key)
        return jnp.sum(jax.vmap(log_evidence)(values, jax.random.split(key, len(values))))

    return compile_filter(total, observations(workload["series"], workload["steps"]))


serve(prepare, "cuthbert", "cuthbertlib", "jax", "jaxlib", "numba")
