"""The replay of a run for a rule, which decides what gradients pass through and where they stop.

The sampler is not differentiated. A rule recomputes the steps from the sampler's draws, along its own *flow*, and this
replay is differentiated. A block of steps is replayed in three phases, so that as little as possible is sequential:

1. the recurrence of the memories along the ancestral lines, a scan, only where a gradient crosses time;
2. the densities of all steps at once, where networks spend most of their time;
3. the weights and the rule's surrogate, a few numbers per particle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from mcfo.gradients.draws import Taken, has_zero_weight, stand_in
from mcfo.gradients.rules import Flow, Lane, PathRule, Step, StepRule, has_networks, is_local, with_gradient_of
from mcfo.models.base import MarkovModel, Model
from mcfo.proposals.base import Proposal
from mcfo.series import Frame
from mcfo.smc.noise import from_noise, step_key
from mcfo.smc.step import Densities, imputed_observation, inherit, log_densities, prior_and_proposed, weigh
from mcfo.smc.trace import StepDraw
from mcfo.smc.weights import uniform_log_weights
from mcfo.types import Key, LogWeights, Memory, Scalar

_THINNING_TAG = 0x7468696E
"""Separates the keys of rules that draw a few particles from those of the sampler."""


class Strand(eqx.Module):
    """The state that a lane carries from one step to the next, differentiable along the rule's flow.

    - `memory`: the memories of the particles; None where no gradient comes from the past.
    - `log_weights`: log v_t.
    - `path`: the state of a path rule; None for other rules.
    """

    memory: Memory
    log_weights: LogWeights
    path: Any


def frozen(tree: Any) -> Any:
    """Return the same module with constant parameters: the other side of a rule never learns from it."""
    return jax.tree.map(lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_inexact_array(leaf) else leaf, tree)


class Replay:
    """The recomputation of the steps of one series for one lane.

    **Arguments:**

    - `guard`: whether to keep zero-weight particles out of the gradient; without it, no particle may have weight zero.
    - `checkpoint`: whether the backward pass recomputes the recurrence and the densities instead of saving them.
    """

    def __init__(
        self, lane: Lane, model: Model, proposal: Proposal, key: Key, *, guard: bool = True, checkpoint: bool = False
    ):
        self._lane, self._rule, self._flow, self._key = lane, lane.rule, lane.rule.flow, key
        self._model = model if lane.theta else frozen(model)
        self._proposal = proposal if lane.phi else frozen(proposal)
        self._guard, self._checkpoint = guard, checkpoint
        self._copies = not has_networks(model, proposal) and is_local(lane.rule, model)
        # Gradients that cross time pass through memories too; only stand-ins keep zero-weight particles out of them.
        self._stands_in = guard and not (self._copies and is_local(lane.rule, model))

    def first(self, taken: Taken) -> tuple[Scalar, Strand]:
        """Return the surrogate of the first step, and the strand after it."""
        taken = self._own(taken)
        start = self._model.start(taken.frame.inputs)
        memory, latents, later = start, taken.draw.latents, None
        if self._crosses(taken):
            latents, later = self._advance(start, taken.frame, taken.draw, first=True)
        densities = self._densities(memory, latents, taken.frame, taken.draw, first=True)
        step = self._weighed(taken, densities, taken.draw.carried, taken.draw.carried)
        path, term = None, self._term(step, taken.frame)
        if isinstance(self._rule, PathRule):
            path, term = self._rule.extend(self._rule.start(step.log_weights), step)
        return term, Strand(later, self._as_carried(step.log_weights), path)

    def rest(self, taken: Taken, strand: Strand | None, recurred: Any = None) -> tuple[Scalar, Strand]:
        """Return the surrogate of later steps, whose time axis comes first, and the strand after them.

        Without a strand no gradient comes from the past: the steps start from the sampler's own memories. `recurred` is
        the result of `recur` for these steps, if it was called before.
        """
        if recurred is None and strand is not None:
            recurred = self.recur(taken, strand.memory)
        taken = self._own(taken, several=True)
        memories, latents = taken.draw.memory, taken.draw.latents
        # Without a recurrence the strand still has the first step's memory: a loop must carry one structure throughout.
        last = None if strand is None else strand.memory
        if recurred is not None:
            last, (memories, latents) = recurred

        def of_step(step: Any) -> Densities:
            frame, draw, memory, latents = step
            return self._densities(memory, latents, frame, draw, first=False)

        densities = self._over_steps(of_step, (taken.frame, taken.draw, memories, latents))
        if isinstance(self._rule, StepRule) and self._flow.latents != "all":

            def of_weights(step: Any) -> tuple[Scalar, LogWeights]:
                taken, densities = step
                step = self._weighed(taken, densities, taken.draw.carried, taken.draw.carried)
                return self._term(step, taken.frame), step.log_weights

            terms, log_weights = self._over_steps(of_weights, (taken, densities))
            return jnp.sum(terms), Strand(last, self._as_carried(log_weights[-1]), None)
        assert strand is not None
        (log_weights, path), terms = _scan(self._along, (strand.log_weights, strand.path), (taken, densities))
        return jnp.sum(terms), Strand(last, log_weights, path)

    def finish(self, strand: Strand, log_weights: LogWeights) -> Scalar:
        """Return the rest of a path rule's surrogate; `log_weights` are the sampler's after the last step."""
        return self._rule.finish(strand.path, log_weights) if isinstance(self._rule, PathRule) else jnp.zeros(())

    def _own(self, taken: Taken, several: bool = False) -> Taken:
        """Return the steps, differentiable for this lane's side alone, with the particles that its rule uses."""
        frame = taken.frame if self._lane.phi else frozen(taken.frame)
        rule, draw = self._rule, taken.draw
        if isinstance(rule, StepRule) and rule.draws is not None:

            def thin(draw: StepDraw, frame: Frame) -> StepDraw:
                own = step_key(self._key, frame)
                return rule.thinned(draw, key=jax.random.fold_in(own, _THINNING_TAG))

            draw = (jax.vmap(thin) if several else thin)(draw, frame)
        return Taken(frame, draw, taken.remaining)

    def _crosses(self, taken: Taken) -> bool:
        """Return whether a gradient comes from the past. Given the latents, memories depend on theta, not on phi."""
        if self._flow.latents == "all":
            return True
        return not isinstance(self._model, MarkovModel) and (self._lane.theta or taken.draw.memory is None)

    def recur(self, taken: Taken, memory: Memory) -> tuple[Memory, tuple[Memory, Any]] | None:
        """Phase 1: return the memories after the last step, and, along the ancestral lines, those before each step with
        its latents; None if no gradient comes from the past.
        """
        taken = self._own(taken, several=True)
        if not self._crosses(taken):
            return None

        def body(memory: Memory, step: Any) -> tuple[Memory, tuple[Memory, Any]]:
            frame, draw = step
            before = inherit(memory, draw.ancestors)
            if draw.memory is not None:
                # XLA does not see that the sampler's loop carries the same numbers, and would compute with both.
                before = with_gradient_of(draw.memory, before)
            if self._stands_in:
                before = stand_in(before, draw)
            latents, later = self._advance(before, frame, draw, first=False)
            return frame.unless_padding(later, before), (before, latents)

        body = jax.checkpoint(body) if self._checkpoint else body
        return _scan(body, memory, (taken.frame, taken.draw))

    def _advance(self, memory: Memory, shared: Frame, draw: StepDraw, *, first: bool) -> tuple[Any, Memory]:
        """Return the latents of a step, differentiable along the flow, and the memories after it."""
        flow = self._flow

        def extend(memory: Memory, noise: Any, latent: Any, imputation: Any, absent: Any) -> tuple[Any, Memory]:
            modules = self._model, self._proposal, shared
            model, proposal, frame = _own_copies(modules, absent) if self._copies else modules
            if flow.latents == "all":
                latent = from_noise(prior_and_proposed(model, proposal, memory, frame, first=first)[1], noise)
            else:
                # Later steps remember the sampler's latent as a constant, also where a rule for phi draws it again.
                latent = jax.lax.stop_gradient(latent)
            observation = frame.observation
            if imputation is not None:
                emission = model.emission(memory, latent, frame.inputs)
                observation = imputed_observation(emission, frame, imputation)
            return latent, model.advance_with(memory, latent, observation, frame.observed, frame.inputs)

        noise, latents = (stand_in(tree, draw) if self._stands_in else tree for tree in (draw.noise, draw.latents))
        in_axes = (None if first else 0, 0, 0, 0, 0)
        return jax.vmap(extend, in_axes=in_axes)(memory, noise, latents, draw.imputation, has_zero_weight(draw))

    def _densities(self, memory: Memory, latents: Any, frame: Frame, draw: StepDraw, *, first: bool) -> Densities:
        """Phase 2: return the densities of all particles at one step."""
        noise, absent = draw.noise, has_zero_weight(draw)
        if self._stands_in:
            noise, latents = stand_in(noise, draw), stand_in(latents, draw)
            memory = memory if first else stand_in(memory, draw)
        shares = self._shares(memory, latents, noise, frame, draw, first)

        def extend(memory: Memory, latent: Any, noise: Any, imputation: Any, share: Any, absent: Any) -> Densities:
            modules = self._model, self._proposal, frame
            model, proposal, own = _own_copies(modules, absent) if self._copies else modules
            return _particle(self._flow, model, proposal, own, first)(memory, latent, noise, imputation, share)

        in_axes = (None if first else 0, 0, 0, 0, 0, 0)
        return jax.vmap(extend, in_axes=in_axes)(memory, latents, noise, draw.imputation, shares, absent)

    def _shares(self, memory: Memory, latents: Any, noise: Any, frame: Frame, draw: StepDraw, first: bool) -> Any:
        """Return the v_i as constants, for a flow that scales the gradient through a latent by them; otherwise None."""
        if not self._flow.weighted:
            return None
        log_weights = draw.log_weights
        if log_weights is None:
            # The latents are drawn again, so their weights are computed again.
            extend = _particle(self._flow, frozen(self._model), frozen(self._proposal), frozen(frame), first)
            in_axes = (None if first else 0, 0, 0, 0, None)
            found = jax.vmap(extend, in_axes=in_axes)(memory, latents, noise, draw.imputation, None)
            log_weights, _ = weigh(self._carried(draw, draw.carried), found.log_weight, frame)
        return jax.lax.stop_gradient(jnp.exp(log_weights))

    def _weighed(self, taken: Taken, densities: Densities, carried: LogWeights, parents: LogWeights) -> Step:
        """Phase 3: return the quantities of one step that the rule combines."""
        draw = taken.draw
        log_weights, increment = weigh(self._carried(draw, carried), densities.log_weight, taken.frame)
        if draw.log_weights is not None and self._flow.latents != "all":
            log_weights = with_gradient_of(draw.log_weights, log_weights)
        return Step(
            log_joint=densities.log_joint,
            log_imputed=densities.log_imputed,
            log_proposal=densities.log_proposal,
            log_weights=log_weights,
            increment=increment,
            parents=parents,
            ancestors=draw.ancestors,
            resampled=draw.resampled,
            remaining=taken.remaining,
        )

    def _carried(self, draw: StepDraw, carried: LogWeights) -> LogWeights:
        return jnp.where(has_zero_weight(draw), -jnp.inf, carried) if self._guard else carried

    def _term(self, step: Step, frame: Frame) -> Scalar:
        """Return the term of a step rule; zero for a padded step, and for other rules."""
        if not isinstance(self._rule, StepRule):
            return jnp.zeros_like(step.increment)
        term = self._rule.term(step)
        return frame.unless_padding(term, jnp.zeros_like(term))

    def _along(self, carry: tuple[LogWeights, Any], step: tuple[Taken, Densities]) -> tuple[Any, Scalar]:
        """Phase 3 for one step of a scan that carries the weights or the state of a path rule."""
        parents, path = carry
        taken, densities = step
        draw, carried = taken.draw, taken.draw.carried
        if self._flow.latents == "all":
            carried = jnp.where(draw.resampled, uniform_log_weights(len(parents), parents.dtype), parents)
            carried = with_gradient_of(draw.carried, carried)
        seen = self._weighed(taken, densities, carried, parents)
        term = self._term(seen, taken.frame)
        if isinstance(self._rule, PathRule):
            path, term = self._rule.extend(path, seen)
            term = taken.frame.unless_padding(term, jnp.zeros_like(term))
        return taken.frame.unless_padding((self._as_carried(seen.log_weights), path), carry), term

    def _as_carried(self, log_weights: LogWeights) -> LogWeights:
        """Return the log-weights for the next step. Only the flow "all" passes through them."""
        return log_weights if self._flow.latents == "all" else jax.lax.stop_gradient(log_weights)

    def _over_steps(self, function: Callable[[Any], Any], steps: Any) -> Any:
        """Return `function` of every step, computed for all at once; with `checkpoint`, one after the other."""
        if len(jax.tree.leaves(steps)[0]) == 1:
            # Without a time axis XLA merges this with the sampler's computation of the same numbers.
            found = function(jax.tree.map(lambda array: array[0], steps))
            return jax.tree.map(lambda array: array[None], found)
        return jax.lax.map(jax.checkpoint(function), steps) if self._checkpoint else jax.vmap(function)(steps)


def _scan(body: Callable[[Any, Any], tuple[Any, Any]], carry: Any, steps: Any) -> tuple[Any, Any]:
    """`jax.lax.scan`, but without a loop for a single step, so that XLA merges it with the sampler's step."""
    if len(jax.tree.leaves(steps)[0]) > 1:
        return jax.lax.scan(body, carry, steps)
    carry, found = body(carry, jax.tree.map(lambda array: array[0], steps))
    return carry, jax.tree.map(lambda array: array[None], found)


def _particle(flow: Flow, model: Model, proposal: Proposal, frame: Frame, first: bool) -> Callable[..., Densities]:
    """Return the function that computes the densities of one particle along a flow."""
    stop = jax.lax.stop_gradient

    def extend(memory: Memory, latent: Any, noise: Any, imputation: Any, share: Scalar | None) -> Densities:
        prior, proposed = prior_and_proposed(model, proposal, memory, frame, first=first)
        if flow.latents == "none":
            # A score estimate treats latents as data.
            latent = stop(latent)
        elif flow.latents == "step":
            # The past is given: q is judged by this step alone. It reads the memory and the prior as constants, so that
            # no gradient reaches theta through q.
            _, proposed = prior_and_proposed(frozen(model), proposal, stop(memory), frame, first=first)
            latent = from_noise(proposed, noise)
            if share is not None:
                latent = _scaled(latent, share)
            if not flow.density:
                # q's own density is a function of z alone: its score has mean zero, or the rule accounts for it.
                fixed = eqx.tree_at(lambda f: f.context, frame, stop(frame.context), is_leaf=lambda leaf: leaf is None)
                _, proposed = prior_and_proposed(frozen(model), frozen(proposal), stop(memory), fixed, first=first)
        return log_densities(model, prior, proposed, memory, latent, frame, imputation)

    return extend


def _own_copies(tree: Any, absent: Bool[Array, ""]) -> Any:
    """Return a copy of the parameters and contexts for one particle; a zero-weight particle gives it no gradient.

    Gradients are then computed for each particle and added up at the end. For models of few parameters that is faster:
    the products are elementwise, and the `where` before the sum lets XLA:CPU vectorize it. Shared parameters with
    stand-ins take 3 times as long (jaxlib 0.10; the `learning` rows of `make bench`).
    """
    return jax.tree.map(lambda leaf: _own_copy(leaf, absent) if eqx.is_inexact_array(leaf) else leaf, tree)


@jax.custom_jvp
def _own_copy(array: Array, absent: Bool[Array, ""]) -> Array:
    # Adding zero gives the copy the particles' axis under `vmap`; XLA removes the addition.
    return array + (absent & False)


@_own_copy.defjvp
def _own_copy_tangent(primals: Any, tangents: Any) -> Any:
    array, absent = primals
    return array + (absent & False), jnp.where(absent, 0.0, tangents[0])


@jax.custom_jvp
def _scaled(values: Any, share: Scalar) -> Any:
    """Return the same values, with their gradient multiplied by the share."""
    return values


@_scaled.defjvp
def _scaled_tangent(primals: Any, tangents: Any) -> Any:
    values, share = primals
    return values, jax.tree.map(lambda tangent: share * tangent, tangents[0])


def repaired(absent: Bool[Array, ""], once: Any, again: Callable[[], Any]) -> Any:
    """Return the gradient `once`, or `again()` if a particle had weight zero.

    It is a loop of at most one iteration, not a condition: under `vmap` both branches of a condition are computed.
    """
    state = jax.lax.while_loop(lambda state: state[0], lambda state: (jnp.zeros_like(absent), again()), (absent, once))
    return state[1]
