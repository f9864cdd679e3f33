"""The results of a run of a sampler."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from mcfo.types import LogWeights, Memory


class Particles(eqx.Module):
    """Weighted samples for each step; the weights of a step sum to one."""

    latents: Shaped[Array, "*batch particles *latent"]
    log_weights: Float[Array, "*batch particles"]

    def mean(self) -> Float[Array, "*batch *latent"]:
        """The weighted mean over the particles."""
        return jnp.sum(self._weights() * self.latents, axis=self._axis())

    def variance(self) -> Float[Array, "*batch *latent"]:
        """The weighted variance over the particles, one for each dimension of the latent."""
        centered = self.latents - jnp.expand_dims(self.mean(), self._axis())
        return jnp.sum(self._weights() * centered**2, axis=self._axis())

    def _axis(self) -> int:
        return self.log_weights.ndim - 1

    def _weights(self):
        extra = self.latents.ndim - self.log_weights.ndim
        return jnp.exp(self.log_weights).reshape(*self.log_weights.shape, *([1] * extra))


class State(eqx.Module):
    """The state of a filter after a step: all that the next step needs besides the data."""

    memory: Memory
    latents: Shaped[Array, " particles *latent"]
    log_weights: LogWeights

    @property
    def particles(self) -> Particles:
        """The filtering distribution p(z_t | x_1:t)."""
        return Particles(self.latents, self.log_weights)


class Record(eqx.Module):
    """The diagnostics of one step.

    - `log_evidence`: the increment log p̂(x_t | x_1:t-1); not finite if the step failed.
    - `ess`: effective sample size after weighting.
    - `unique_ancestors`: the number of particles of the previous step that have descendants in this one.
    - `resampled`: whether resampling preceded the step.
    """

    log_evidence: Float[Array, "*steps"]
    ess: Float[Array, "*steps"]
    unique_ancestors: Int[Array, "*steps"]
    resampled: Bool[Array, "*steps"]

    @property
    def finite(self) -> Bool[Array, "*steps"]:
        """True where the step's evidence is a finite number."""
        return jnp.isfinite(self.log_evidence)


class StepDraw(eqx.Module):
    """The draws of one step. With the frame they are all that is needed to recompute and differentiate the step.

    - `ancestors`: the ancestor of each particle; its own index where nothing was resampled.
    - `resampled`: whether resampling preceded the step.
    - `memory`: the memories at the start of the step, after resampling; None at the first step.
    - `carried`: the normalized log-weights at the start of the step.
    - `noise`: the random numbers from which the latents were computed.
    - `latents`: z_t.
    - `log_weights`: the normalized log-weights after the step; None where the latents are drawn again.
    - `imputation`: one key per particle to draw the missing values of x_t, if the memory needs them.
    """

    ancestors: Int[Array, "*steps particles"]
    resampled: Bool[Array, "*steps"]
    memory: Memory
    carried: Float[Array, "*steps particles"]
    noise: Shaped[Array, "..."]
    latents: Shaped[Array, "..."]
    log_weights: Float[Array, "*steps particles"] | None
    imputation: Shaped[Array, "..."] | None


class History(eqx.Module):
    """Every particle of every step, with its ancestor in the step before (its own index at the first step)."""

    latents: Shaped[Array, "..."]
    log_weights: Float[Array, "*steps particles"]
    ancestors: Int[Array, "*steps particles"]

    @property
    def particles(self) -> Particles:
        """The filtering distributions p(z_t | x_1:t), t = 1..T."""
        return Particles(self.latents, self.log_weights)


class Trace(eqx.Module):
    """A run over one series: the last state, the record of every step, and the history if it was saved.

    `length` is the number of steps that are not padding; None if no step is. `series_id` is that of the series.
    """

    state: State
    record: Record
    history: History | None
    length: Int[Array, ""] | None
    series_id: Int[Array, ""]

    @property
    def log_evidence(self) -> Float[Array, "*batch"]:
        """log p̂(x_1:T), the sum of the increments. Its exponential is unbiased for p(x_1:T)."""
        return jnp.sum(self.record.log_evidence, axis=-1)

    @property
    def particle_count(self) -> int:
        """K."""
        return self.state.log_weights.shape[-1]

    def require_history(self) -> History:
        """Return the history, or raise an error that says how to save it."""
        if self.history is None:
            raise ValueError("This run saved no history. Run the sampler with history=True.")
        return self.history
