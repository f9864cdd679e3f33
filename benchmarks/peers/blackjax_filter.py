"""blackjax: its SMC step with the transition as the move, scanned over time."""

import jax
import jax.numpy as jnp
from blackjax.smc import base, resampling
from serving import COEFFICIENT, compile_filter, observations, serve


def prepare(workload):
    particles = workload["particles"]
    resample = getattr(resampling, workload["scheme"])

    def move(keys, latents, _):
        return jax.vmap(lambda key, latent: COEFFICIENT * latent + jax.random.normal(key))(keys, latents), None

    def log_evidence(values, key):
        def step(state, now):
            value, key = now
            state, info = base.step(
                key, state, move, jax.vmap(lambda z: jax.scipy.stats.norm.logpdf(value, z)), resample
            )
            return state, info.log_likelihood_increment

        # From zero the first move is the initial law.
        start = base.init(jnp.zeros(particles), None)
        return jnp.sum(jax.lax.scan(step, start, (values, jax.random.split(key, len(values))))[1])

    def total(values, key):
        if len(values) == 1:
            return log_evidence(values[0], key)
        return jnp.sum(jax.vmap(log_evidence)(values, jax.random.split(key, len(values))))

    return compile_filter(total, observations(workload["series"], workload["steps"]))


serve(prepare, "blackjax", "jax", "jaxlib")
