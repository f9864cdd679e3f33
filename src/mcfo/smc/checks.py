"""Whether a model, a proposal and a sequence fit together: asked once, before anything runs.

Everything here is about shapes, types and supports, so it is settled while the program is traced and costs nothing
when it runs.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from numpyro.distributions import constraints

from mcfo.distributions import NoiseShape, noise_shape
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.sequences import Frame, Sequence
from mcfo.types import Distribution


class Fit(NamedTuple):
    """The noise that the proposal wants at the first step and at the others."""

    initial: NoiseShape | None
    step: NoiseShape | None


def check_rank(sequence: Sequence) -> None:
    """Refuses a batch where one sequence is wanted."""
    if sequence.observations.ndim != 2:
        raise ValueError(
            f"The observations have shape {sequence.observations.shape}, but a sampler runs over one sequence, "
            "(steps, dimensions). For a batch use jax.vmap(lambda one: sampler(model, proposal, one, key=key))(batch)."
        )


def check_fit(model: Model, proposal: Proposal, frame: Frame) -> Fit:
    """Refuses a model, proposal and observation that do not fit together, and says what noise the proposal wants."""
    fits = []

    def probe(model: Model, proposal: Proposal, frame: Frame, key: Any):
        memory = model.start(frame.inputs)
        prior = model.initial(memory, frame.inputs)
        law = proposal.initial(prior, frame.context)
        latent = _check_pair(prior, law, "initial", "initial", key)
        _check_emission(model.emission(memory, latent, frame.inputs), frame, key)
        memory = model.advance(memory, latent, frame.observation)

        next_prior = model.transition(memory, frame.inputs)
        next_law = proposal.step(next_prior, memory, frame.context)
        next_latent = _check_pair(next_prior, next_law, "transition", "step", key)
        _check_emission(model.emission(memory, next_latent, frame.inputs), frame, key)
        _check_same("initial() and transition() draw latents", latent, next_latent)
        _check_same(
            "advance() returned, after the first and the second step, memories",
            memory,
            model.advance(memory, next_latent, frame.observation),
        )
        fits.append(Fit(noise_shape(law), noise_shape(next_law)))

    eqx.filter_eval_shape(probe, model, proposal, frame, jax.random.key(0))
    return fits[0]


def _check_pair(prior: Any, law: Any, model_method: str, proposal_method: str, key: Any) -> Any:
    """Refuses a proposal whose draws the prior cannot have made, or the other way round; returns a draw."""
    wanted = _check_scalar_density(prior, f"The model's {model_method}()", key)
    latent = wanted if law is prior else _check_scalar_density(law, f"The proposal's {proposal_method}()", key)
    if latent.shape != wanted.shape:
        raise ValueError(
            f"The proposal's {proposal_method}() draws latents of shape {latent.shape}, but the model's "
            f"{model_method}() has event shape {wanted.shape}. Make the proposal for a latent of shape {wanted.shape}."
        )
    _check_support(prior, law, model_method, proposal_method)
    return latent


def _check_scalar_density(distribution: Any, source: str, key: Any) -> Any:
    if not isinstance(distribution, Distribution):
        raise ValueError(
            f"{source} returned {type(distribution).__name__}, which is not a distribution. Return one of "
            "numpyro.distributions, or an object with sample(key) and log_prob(value)."
        )
    if getattr(distribution, "batch_shape", ()) != ():
        raise ValueError(
            f"{source} returned {type(distribution).__name__} with batch shape {distribution.batch_shape}: as many "  # pyright: ignore[reportAttributeAccessIssue]
            "separate densities, where one for the whole vector is wanted. Add "
            f".to_event({len(distribution.batch_shape)})."  # pyright: ignore[reportAttributeAccessIssue]
        )
    value = jnp.asarray(distribution.sample(key))
    density = jnp.shape(distribution.log_prob(value))
    if density != ():
        raise ValueError(f"{source} returned a distribution whose log_prob has shape {density}; one number is wanted.")
    return value


def _check_support(prior: Any, law: Any, model_method: str, proposal_method: str) -> None:
    if law is prior or not (hasattr(prior, "support") and hasattr(law, "support")):
        return
    if _kind(prior.support) != _kind(law.support):
        raise ValueError(
            f"The proposal's {proposal_method}() has support {_name(law.support)}, but the model's {model_method}() "
            f"has {_name(prior.support)}: the weights would be wrong or NaN. Propose from a distribution with the "
            "model's support, or transform the latent."
        )


def _kind(support: Any) -> Any:
    """What decides whether two supports are the same set; bounds that are being traced cannot be compared."""
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return constraints.real if support == constraints.real_vector else type(support)


def _name(support: Any) -> str:
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return type(support).__name__.strip("_")


def _check_emission(emission: Any, frame: Frame, key: Any) -> None:
    value = _check_scalar_density(emission, "The model's emission()", key)
    if value.shape != frame.observation.shape:
        raise ValueError(
            f"The model's emission() has event shape {value.shape}, but an observation has shape "
            f"{frame.observation.shape}. Give the model as many observed dimensions as the data have columns."
        )


def _check_same(what: str, first: Any, second: Any) -> None:
    def describe(tree):
        return jax.tree.structure(tree), [(leaf.shape, jnp.result_type(leaf)) for leaf in jax.tree.leaves(tree)]

    if describe(first) != describe(second):
        raise ValueError(
            f"{what} that differ: {jax.tree.map(_shape, first)} and {jax.tree.map(_shape, second)}. They must have the "
            "same structure, shapes and dtypes."
        )


def _shape(leaf: Any) -> str:
    return f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}"
