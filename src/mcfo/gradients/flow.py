"""What gradient flows where in one step: the only place where estimators stop it.

A sampler draws; it is not differentiated. A rule goes through the step again, from what the sampler drew, along its own
*flow*, and what it computes is differentiated. The numbers are the same, so the compiler does the work once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mcfo.missing import from_noise
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Frame
from mcfo.smc.filter import Drawn, draw, first_laws, inherit, next_laws, weigh
from mcfo.smc.trace import Move
from mcfo.smc.weights import uniform_log_weights
from mcfo.types import LogWeights, Memory, Scalar


class Flow(NamedTuple):
    """What a rule's gradient may pass through.

    - `latents`: "all", the latents of this step and of the past, with the weights that they carry; "step", those of
      this step alone, the past being given; "none", no latent: they are data.
    - `density`: whether the parameters inside of q's own density count.
    - `weighted`: whether what passes through a latent of this step is multiplied by the particle's weight v_i.
    """

    latents: Literal["all", "step", "none"]
    density: bool = True
    weighted: bool = False


Guard = Literal["stand-ins", "numbers", "none"]
"""What keeps particles of weight zero out of a gradient. They may be anywhere, and zero times an infinite derivative is
NaN.

- "stand-ins": a living particle stands in for each, with its weight still zero.
- "numbers": each particle has a gradient of its own, before these are added up, and a dead one has none. For few
  parameters, and where no gradient comes from the past.
- "none": nothing; no particle may have weight zero.

With the last two the numbers are exactly the sampler's, so that the compiler computes them once.
"""


class Step(eqx.Module):
    """What a rule sees of one step: K particles, live as far as its flow says.

    - `log_joint`: log p(z_t, x_t | h_t-1), of what was observed of x_t.
    - `log_imputed`: log p of what was missing and has been drawn, given the rest; zero where nothing was.
    - `log_proposal`: log q(z_t | h_t-1, x).
    - `log_ratio`: log w_t = log_joint - log_proposal.
    - `log_weights`: the normalized weights after the step, log v_t.
    - `increment`: log R_t.
    - `parents`: log v_t-1 of the particles before they were resampled.
    - `ancestors`, `resampled`: how they were.
    - `remaining`: how many steps there are from this one to the last.
    """

    log_joint: LogWeights
    log_imputed: LogWeights
    log_proposal: LogWeights
    log_weights: LogWeights
    increment: Scalar
    parents: LogWeights
    ancestors: Int[Array, " particles"]
    resampled: Bool[Array, ""]
    remaining: Int[Array, ""]

    @property
    def log_ratio(self) -> LogWeights:
        return self.log_joint - self.log_proposal

    def average(self, values: Float[Array, " particles"]) -> Scalar:
        """Σ_i [v_i] values_i. Particles of weight zero count for nothing, whatever their values are."""
        return weighted_sum(self.log_weights, values)


def weighted_sum(log_weights: LogWeights, values: Float[Array, " particles"]) -> Scalar:
    """Σ_i [v_i] values_i, where the weights are numbers: an estimate averages, it does not reweight."""
    log_weights = jax.lax.stop_gradient(log_weights)
    alive = log_weights > -jnp.inf
    return jnp.sum(jnp.where(alive, jnp.exp(log_weights) * jnp.where(alive, values, 0.0), 0.0))


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
    guard: Guard = "stand-ins",
    weighed: bool = False,
) -> tuple[Step, Strand]:
    """Goes through one step again along a flow.

    Without a `strand` the step begins from the memories that the sampler had: no gradient comes from the past. With
    `weighed` the move has the weights of all these particles: they are made again for their gradient alone.
    """
    memory, carried, parents = move.memory, move.carried, move.carried
    if strand is not None:
        memory, parents = inherit(strand.memory, move.ancestors), strand.log_weights
        if move.memory is not None:
            # The compiler does not see that two variables of a loop are equal, and would compute with both.
            memory = with_gradient_of(move.memory, memory)
        if flow.latents == "all":
            uniform = uniform_log_weights(len(move.ancestors), move.carried.dtype)
            carried = jnp.where(move.resampled, uniform, strand.log_weights)
    laws, start = (first_laws, model.start(frame.inputs)) if first else (next_laws, None)
    noise, latents = move.noise, move.latents
    dead = None if guard == "none" else is_dead(move)
    if dead is not None and guard == "stand-ins":
        best = jnp.argmax(move.carried if move.log_weights is None else move.log_weights)
        memory, noise, latents = _stand_in((memory, noise, latents), dead, best)
        carried = jnp.where(dead, -jnp.inf, carried)

    def draw_all(modules: tuple[Model, Proposal, Frame], shares: Any) -> Drawn:
        def one(memory: Memory, noise: Any, latent: Any, imputation: Any, share: Any, dead: Any) -> Drawn:
            p, q, own = _as_numbers(modules, dead) if guard == "numbers" else modules
            extend = _extend(flow, p, q, own, laws)
            return extend(start if first else memory, noise, latent, imputation, share)

        return jax.vmap(one)(memory, noise, latents, move.imputation, shares, dead)

    shares, known = None, move.log_weights if weighed else None
    if flow.weighted:
        numbers = (frozen(model), frozen(proposal), frozen(frame))
        weights = weigh(carried, draw_all(numbers, None).log_weight, frame)[0] if known is None else known
        shares = jax.lax.stop_gradient(jnp.exp(weights))
    drawn = draw_all((model, proposal, frame), shares)
    log_weights, increment = weigh(carried, drawn.log_weight, frame)
    log_weights = log_weights if known is None else with_gradient_of(known, log_weights)
    step = Step(
        log_joint=drawn.log_joint,
        log_imputed=drawn.log_imputed,
        log_proposal=drawn.log_proposal,
        log_weights=log_weights,
        increment=increment,
        parents=parents,
        ancestors=move.ancestors,
        resampled=move.resampled,
        remaining=remaining,
    )
    # Only a flow through everything goes on through the weights.
    after = Strand(drawn.memory, log_weights if flow.latents == "all" else jax.lax.stop_gradient(log_weights))
    return step, after if first else frame.unless_padding(after, Strand(memory, carried))


def is_dead(move: Move) -> Bool[Array, "*steps particles"]:
    """Which particles have weight zero, before the step or after it."""
    dead = move.carried == -jnp.inf
    # What is drawn anew has weights of its own: of the dead, only those that began so are known.
    return dead if move.log_weights is None else dead | (move.log_weights == -jnp.inf)


def _as_numbers(tree: Any, dead: Bool[Array, ""]) -> Any:
    """Parameters and contexts as one particle reads them: a dead one reads numbers, so that nothing counts of what it
    says about them, be it NaN."""

    return jax.tree.map(lambda leaf: _number_if(dead, leaf) if eqx.is_inexact_array(leaf) else leaf, tree)


@jax.custom_jvp
def _number_if(dead: Bool[Array, ""], array: Array) -> Array:
    """The array, through which no gradient passes if the particle is dead."""
    return _copy(array, dead)


@_number_if.defjvp
def _number_if_tangent(primals: Any, tangents: Any) -> Any:
    dead, array = primals
    return _copy(array, dead), jnp.where(dead, 0.0, tangents[1])


def _copy(array: Array, dead: Bool[Array, ""]) -> Array:
    """The array, as each particle's own under `vmap`. The compiler sees that nothing is added."""
    return array + (dead & False)


def _stand_in(tree: Any, dead: Bool[Array, " particles"], best: Int[Array, ""]) -> Any:
    def replace(array: Array) -> Array:
        return jnp.where(dead.reshape(-1, *[1] * (array.ndim - 1)), array[best], array)

    return jax.tree.map(replace, tree)


def _extend(flow: Flow, model: Model, proposal: Proposal, frame: Frame, laws: Any) -> Callable[..., Drawn]:
    """How one particle goes on from its memory."""
    stop = jax.lax.stop_gradient

    def extend(memory: Memory, noise: Any, latent: Any, imputation: Any, share: Scalar | None) -> Drawn:
        prior, law = laws(model, proposal, memory, frame)
        if flow.latents == "all":
            return draw(model, prior, law, memory, noise, frame, imputation)
        if flow.latents == "none":
            # A score estimate takes latents as data.
            return draw(model, prior, law, memory, noise, frame, imputation, latent=stop(latent))
        # The past is given: q is judged by this step alone. It reads the memory and the prior as numbers, so that
        # theta is not taught through what q does with them.
        law = density = laws(frozen(model), proposal, stop(memory), frame)[1]
        if not flow.density:
            # q's own density is a function of z alone: its score has mean zero, or is accounted for by the rule.
            numbers = eqx.tree_at(lambda f: f.context, frame, stop(frame.context), is_leaf=lambda leaf: leaf is None)
            density = laws(frozen(model), frozen(proposal), stop(memory), numbers)[1]
        live = from_noise(law, noise)
        if share is not None:
            live = _scaled(live, share)
        drawn = draw(model, prior, density, memory, noise, frame, imputation, latent=live)
        # Later steps remember the sampler's latent, as a number, also where this one was drawn anew.
        later = draw(model, prior, density, memory, noise, frame, imputation, latent=stop(latent))
        return drawn._replace(memory=later.memory)

    return extend


@jax.custom_jvp
def with_gradient_of(values: Any, others: Any) -> Any:
    """The values, with the gradient of others in their place: also where these are not finite."""
    return values


@with_gradient_of.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return primals[0], tangents[1]


@jax.custom_jvp
def _scaled(values: Any, share: Scalar) -> Any:
    """The same values, to the bit, through which a share of the gradient passes."""
    return values


@_scaled.defjvp
def _scaled_tangent(primals: Any, tangents: Any) -> Any:
    values, share = primals
    return values, jax.tree.map(lambda tangent: share * tangent, tangents[0])
