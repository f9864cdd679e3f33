"""The Kalman filter with its derivatives, one observation at a time: the exact score of a stream."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from mcfo.kalman.filter import form_of, frames_of, initial_law
from mcfo.kalman.update import Law, condition, predict, select
from mcfo.models.base import Model
from mcfo.series import Series


class TangentFilter(eqx.Module):
    """p(z_t | x_1:t), and the derivative of its numbers with respect to each learned number of the model.

    The score of log p(x_t | x_1:t-1) is exact as long as the parameters stay; as they move, the derivatives remember
    those before. Following it is recursive maximum likelihood: consistent, with the variance of the maximum-likelihood
    estimator if rates fall. LeGland and Mevel (1997).
    """

    law: Law
    derivatives: Float[Array, "parameters numbers"]

    @classmethod
    def start(cls, learned: Model, rest: Model, row: Series) -> TangentFilter:
        """Return the filter before the first observation; `row` has the shapes of a step."""
        model = eqx.combine(learned, rest)
        law = initial_law(model, frames_of(model, row))
        size = ravel_pytree(learned)[0].size
        return cls(law, jnp.zeros((size, len(ravel_pytree(law._replace(found=None))[0]))))

    def step(self, learned: Model, rest: Model, row: Series, first: Bool[Array, ""]) -> tuple[TangentFilter, Model]:
        """Return the filter after an observation, and the gradient of log p(x_t | x_1:t-1)."""
        parameters, of_parameters = ravel_pytree(learned)
        numbers, of_numbers = ravel_pytree(self.law._replace(found=None))

        def advance(parameters: Array, numbers: Array) -> tuple[tuple[Array, Array], Any]:
            model = eqx.combine(of_parameters(parameters), rest)
            steps = frames_of(model, row)
            frame = jax.tree.map(lambda array: array[0], steps)
            form = form_of(model, frame.inputs)
            before = of_numbers(numbers)._replace(found=self.law.found)
            predicted = select(first, initial_law(model, steps), predict(before, form))
            filtered, updates = condition(predicted, form, frame.observation, frame.observed)
            log_density = jnp.sum(updates.log_density) + frame.context
            return (ravel_pytree(filtered._replace(found=None))[0], log_density), filtered.found

        def along(direction: Array, derivative: Array) -> Any:
            return jax.jvp(advance, (parameters, numbers), (direction, derivative), has_aux=True)

        outputs = ((None, None), (0, 0), None)
        (numbers, _), (derivatives, score), found = jax.vmap(along, out_axes=outputs)(
            jnp.eye(len(parameters), dtype=parameters.dtype), self.derivatives
        )
        later = TangentFilter(of_numbers(numbers)._replace(found=found), derivatives)
        return later, of_parameters(score)
