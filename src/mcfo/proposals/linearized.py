"""A Gaussian proposal for structural models: the prior, corrected by what the observation says of the signal."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array

from mcfo.linear_algebra import cholesky
from mcfo.missing import log_prob
from mcfo.models.structural_model import EmittedStructural, GaussianStructural
from mcfo.proposals.base import Proposal
from mcfo.series import Series
from mcfo.types import Context, Distribution, Inputs, Memory, Scalar

_NEWTON_STEPS = 3


class Linearized(Proposal):
    """N(mean, covariance) with the mode and the curvature of p(z_t | h_t-1) p(x_t | c · z_t + rest).

    The latent enters the emission through one number, the signal, so that the mode is found by Newton's method in one
    dimension. It is the optimal proposal of a Gaussian emission, and follows the model. Shephard and Pitt (1997);
    Durbin and Koopman (2012), section 12.5.
    """

    model: GaussianStructural | EmittedStructural
    follows: ClassVar[bool] = True

    def following(self, model: Any) -> Proposal:
        return Linearized(model) if isinstance(model, GaussianStructural | EmittedStructural) else self

    def encode(self, series: Series) -> Context:
        observed = jnp.ones((1, 1), bool) if series.observed is None else series.observed
        return series.observations, jnp.broadcast_to(observed, series.observations.shape)[:, 0], series.inputs

    def initial(self, prior: Any, context: Context) -> Distribution:
        return self.step(prior, self.model.start(context[2]), context)

    def step(self, prior: Any, memory: Memory, context: Context) -> Distribution:
        observation, observed, inputs = context
        weights = self.model.row(inputs)[np.array(self.model.driven)]
        mean, variance = prior.mean, prior.variance
        signal = self.model.signal(self.model.state(memory, mean), inputs)
        spread = weights**2 @ variance
        mode, curvature = self._mode(observation, signal, spread, inputs)
        shared = variance * weights
        # An unseen signal keeps its prior; one that nothing drives has no spread to divide by.
        seen = observed & (spread > 0)
        pull = jnp.where(seen, (mode - signal) / jnp.where(seen, spread, 1.0), 0.0)
        fall = jnp.where(seen, curvature / (1 + curvature * spread), 0.0)
        covariance = jnp.diag(variance) - fall * jnp.outer(shared, shared)
        if len(mean) == 1:
            return dist.Normal(mean + shared * pull, jnp.sqrt(covariance[0])).to_event(1)
        return dist.MultivariateNormal(mean + shared * pull, scale_tril=cholesky(covariance))

    def _mode(self, observation: Array, signal: Scalar, spread: Scalar, inputs: Inputs) -> tuple[Scalar, Scalar]:
        """The mode of N(η; signal, spread) p(x | η), and minus the second derivative of log p(x | η) there."""

        def log_density(value: Scalar) -> Scalar:
            return log_prob(self.model.emit(value[None], inputs), observation)

        slope, second = jax.grad(log_density), jax.grad(jax.grad(log_density))
        mode = signal
        for _ in range(_NEWTON_STEPS):
            # Heavy tails are not concave: there the prior alone decides how far a step goes.
            curvature = jnp.maximum(-second(mode), 0.0)
            step = spread * slope(mode) - (mode - signal)
            mode = mode + step / (1 + curvature * spread)
        return mode, jnp.maximum(-second(mode), 0.0)
