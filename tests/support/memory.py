"""A non-Markov model small enough to enumerate: binary latents, binary observations, a memory of everything."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from mcfo import Model
from mcfo.types import Distribution, Inputs, Latent, Memory, Observation


class Remembering(Model):
    """z_t and x_t are coin tosses whose odds depend on discounted sums of all earlier latents and observations."""

    weights: jax.Array

    def __init__(self, weights=(0.3, 1.5, -0.8, 0.6, -0.4, 1.2)):
        self.weights = jnp.asarray(weights, float)

    def start(self, inputs: Inputs) -> Memory:
        return jnp.zeros(2)

    def initial(self, memory: Memory, inputs: Inputs) -> Distribution:
        return self.transition(memory, inputs)

    def transition(self, memory: Memory, inputs: Inputs) -> Distribution:
        return dist.Bernoulli(logits=self.weights[0] + self.weights[1] * memory[0] + self.weights[2] * memory[1])

    def emission(self, memory: Memory, latent: Latent, inputs: Inputs) -> Distribution:
        first = self.weights[3] + self.weights[4] * memory[0] + self.weights[5] * (2 * latent - 1)
        second = 0.5 * memory[1] - 0.7 * latent
        return dist.Bernoulli(logits=jnp.stack([first, second])).to_event(1)

    def advance(self, memory: Memory, latent: Latent, observation: Observation) -> Memory:
        return 0.7 * memory + jnp.stack([latent - 0.5, observation[0] - 0.3 * observation[1]])


def exact_evidence(model: Remembering, values: np.ndarray) -> float:
    """p of what is observed (NaN: missing), by the sum over all latents and all missing values."""
    return float(jnp.exp(exact_log_evidence(model, values)))


def exact_log_evidence(model: Remembering, values: np.ndarray) -> jax.Array:
    """Its logarithm, differentiable."""
    gaps = np.argwhere(np.isnan(values))
    latents = np.array(list(itertools.product((0, 1), repeat=len(values))), float)
    fillings = np.array(list(itertools.product((0.0, 1.0), repeat=len(gaps))))
    complete = np.repeat(values[None], len(fillings), axis=0)
    complete[:, gaps[:, 0], gaps[:, 1]] = fillings
    each = jax.vmap(jax.vmap(lambda path, x: log_joint(model, path, x), (0, None)), (None, 0))
    return jax.nn.logsumexp(jax.jit(each)(latents, complete))


def log_joint(model, latents, observations):
    memory, total = model.start(None), 0.0
    for latent, observation in zip(latents, observations, strict=True):
        total = total + model.transition(memory, None).log_prob(latent)
        total = total + model.emission(memory, latent, None).log_prob(observation)
        memory = model.advance(memory, latent, observation)
    return total
