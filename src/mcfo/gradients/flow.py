"""What gradient flows where in one step: the only place where estimators stop it.

A sampler draws; it is not differentiated. A rule goes through the step again, from what the sampler drew, along its own
*flow*, and what it computes is differentiated. The numbers are the same, so the compiler does the work once.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.sequences import Frame
from mcfo.smc.filter import Drawn, draw, first_laws, inherit, next_laws, weigh
from mcfo.smc.trace import Move
from mcfo.smc.weights import uniform_log_weights
from mcfo.types import LogWeights, Memory, Scalar


class Flow(NamedTuple):
    """What a rule's gradient may pass through.

    - `latents`: "all", the latents of this step and of the past, with the weights that they carry; "step", those of
      this step alone, the past being given; "none", no latent: they are data.
    - `density`: whether the parameters inside of q's own density count.
    """

    latents: Literal["all", "step", "none"]
    density: bool = True


class Step(eqx.Module):
    """What a rule sees of one step: K particles, live as far as its flow says.

    - `log_joint`: log p(z_t, x_t | h_t-1).
    - `log_proposal`: log q(z_t | h_t-1, x).
    - `log_weight`: log w_t, their difference.
    - `log_weights`: the normalised weights after the step, log v_t.
    - `increment`: log R_t.
    - `parents`: log v_t-1 of the particles before they were resampled.
    - `ancestors`, `resampled`: how they were.
    - `remaining`: how many steps there are from this one to the last.
    """

    log_joint: LogWeights
    log_proposal: LogWeights
    log_weight: LogWeights
    log_weights: LogWeights
    increment: Scalar
    parents: LogWeights
    ancestors: Int[Array, " particles"]
    resampled: Bool[Array, ""]
    remaining: Int[Array, ""]

    def average(self, values: Float[Array, " particles"], *, power: int = 1) -> Scalar:
        """Σ_i [v_i^power] values_i. Particles of weight zero count for nothing, whatever their values are."""
        return weighted_sum(self.log_weights, values, power=power)


def weighted_sum(log_weights: LogWeights, values: Float[Array, " particles"], *, power: int = 1) -> Scalar:
    """Σ_i [v_i^power] values_i, where the weights are numbers: a score estimate averages, it does not reweight."""
    log_weights = jax.lax.stop_gradient(log_weights)
    alive = log_weights > -jnp.inf
    return jnp.sum(jnp.where(alive, jnp.exp(power * log_weights) * jnp.where(alive, values, 0.0), 0.0))


class Strand(eqx.Module):
    """What a flow carries from one step to the next: memories and weights, live as far as it says."""

    memory: Memory
    log_weights: LogWeights


def frozen(tree: Any) -> Any:
    """The same module with constants for parameters: the other side of a rule never learns from it."""
    return jax.tree.map(lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_inexact_array(leaf) else leaf, tree)


def go_through(
    flow: Flow,
    model: Model,
    proposal: Proposal,
    strand: Strand | None,
    frame: Frame,
    move: Move,
    remaining: Int[Array, ""],
    *,
    first: bool,
) -> tuple[Step, Strand]:
    """Goes through one step again along a flow.

    Without a `strand` the step begins from the memories that the sampler had: no gradient comes from the past.
    """
    memory, carried, parents = move.memory, move.carried, move.carried
    if strand is not None:
        memory, parents = inherit(strand.memory, move.ancestors), strand.log_weights
        if flow.latents == "all":
            uniform = uniform_log_weights(len(move.ancestors), move.carried.dtype)
            carried = jnp.where(move.resampled, uniform, strand.log_weights)
    if first:
        extend = _extend(flow, model, proposal, frame, first_laws)
        start = model.start(frame.inputs)
        drawn = jax.vmap(lambda noise, latent, key: extend(start, noise, latent, key))(
            move.noise, move.latents, move.imputation
        )
    else:
        extend = _extend(flow, model, proposal, frame, next_laws)
        drawn = jax.vmap(extend)(memory, move.noise, move.latents, move.imputation)
    log_weights, increment = weigh(carried, drawn.log_weight, frame)
    step = Step(
        log_joint=drawn.log_joint,
        log_proposal=drawn.log_proposal,
        log_weight=drawn.log_weight,
        log_weights=log_weights,
        increment=increment,
        parents=parents,
        ancestors=move.ancestors,
        resampled=move.resampled,
        remaining=remaining,
    )
    after = Strand(drawn.memory, log_weights)
    return step, after if first else frame.unless_padding(after, Strand(memory, carried))


def _extend(flow: Flow, model: Model, proposal: Proposal, frame: Frame, laws: Any):
    """How one particle goes on from its memory."""
    stop = jax.lax.stop_gradient

    def extend(memory: Memory, noise: Any, latent: Any, imputation: Any) -> Drawn:
        if flow.latents == "step":
            # The past is given: q is judged by this step alone, whatever it did to the memories before.
            memory = stop(memory)
        prior, law = laws(model, proposal, memory, frame)
        # A score estimate takes latents as data.
        given = stop(latent) if flow.latents == "none" else None
        density = None
        if not flow.density and law is not prior:
            # q's own density is a function of z alone: its score has mean zero, or is accounted for by the rule.
            there = eqx.tree_at(lambda f: f.context, frame, stop(frame.context), is_leaf=lambda leaf: leaf is None)
            density = laws(model, frozen(proposal), memory, there)[1]
        drawn = draw(model, prior, law, memory, noise, frame, imputation, latent=given, density=density)
        # Later steps take this one as given too.
        return drawn._replace(memory=stop(drawn.memory)) if flow.latents == "step" else drawn

    return extend
