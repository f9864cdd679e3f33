"""TensorFlow Probability's particle filter on JAX; many series are its batch dimension."""

import jax.numpy as jnp
from serving import COEFFICIENT, compile_filter, observations, serve
from tensorflow_probability.substrates import jax as tfp

SCHEMES = {
    "systematic": tfp.experimental.mcmc.resample_systematic,
    "stratified": tfp.experimental.mcmc.resample_stratified,
    "multinomial": tfp.experimental.mcmc.resample_independent,
}


def prepare(workload):
    normal = tfp.distributions.Normal
    series_list = workload["series"]

    def total(values, key):
        increments = tfp.experimental.mcmc.particle_filter(
            observations=values[0] if series_list == 1 else values.T,
            initial_state_prior=normal(jnp.zeros(() if series_list == 1 else series_list), 1.0),
            transition_fn=lambda step, latent: normal(COEFFICIENT * latent, 1.0),
            observation_fn=lambda step, latent: normal(latent, 1.0),
            num_particles=workload["particles"],
            resample_fn=SCHEMES[workload["scheme"]],
            # At every step. (None never resamples in 0.25, although it is documented to do so always.)
            resample_criterion_fn=lambda state, *_: jnp.ones((1, *state.log_weights.shape[1:]), bool),
            trace_fn=lambda state, results: results.incremental_log_marginal_likelihood,
            seed=key,
        )
        return jnp.sum(increments)

    return compile_filter(total, observations(series_list, workload["steps"]))


serve(prepare, "tensorflow-probability", "jax", "jaxlib")
