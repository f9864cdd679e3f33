"""Checks that a model, a proposal and a series fit together, once and before anything runs.

All checks are about shapes, types and supports, so they run while the program is traced and cost nothing afterwards.
"""

import math
import operator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from numpyro.distributions import constraints

from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.smc.noise import NoiseShape, is_reparameterized, noise_shape
from mcfo.types import Distribution


class Fit(NamedTuple):
    """The shapes of the noise that a proposal needs at the first step and at the others.

    `rigid` says which of its methods returned a distribution that cannot be reparameterized; None if none did.
    """

    initial: NoiseShape | None
    step: NoiseShape | None
    rigid: str | None


def whole_number(value: Any) -> Any:
    """Convert any integer, such as numpy's, to a Python int; return other values unchanged, for a check to refuse."""
    return operator.index(value) if hasattr(value, "__index__") and not isinstance(value, bool) else value


def is_positive(value: Any) -> bool:
    """Return whether a value is a whole number, at least one."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def check_instance(value: Any, wanted: type, name: str, remedy: str) -> None:
    """Refuse an object of another type, and a class where an instance is wanted."""
    if not isinstance(value, wanted):
        came = f"the class {value.__name__}" if isinstance(value, type) else f"{type(value).__name__} {value!r}"
        raise TypeError(f"{name} must be a {wanted.__name__}, but got {came}. {remedy}.")


def check_arguments(model: Any, proposal: Any, key: Any) -> None:
    """Refuse arguments that are not a model, a proposal and a key."""
    check_instance(model, Model, "model", "The order is (model, proposal, series, key=key)")
    check_instance(proposal, Proposal, "proposal", "The order is (model, proposal, series, key=key)")
    is_key = hasattr(key, "dtype") and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    is_old_key = getattr(key, "dtype", None) == jnp.uint32 and key.ndim == 1
    if not ((is_key and key.shape == ()) or is_old_key):
        came = f"an array of shape {key.shape}" if hasattr(key, "shape") else repr(key)
        raise TypeError(f"key must be one JAX random key, but got {came}. Use key=jax.random.key(0); vmap over many.")


def check_frame(frame: Any) -> None:
    """Refuse anything but the frame of one step."""
    check_instance(frame, Frame, "frame", "Build one with mcfo.smc.frame(...), or take one out of mcfo.smc.frames(...)")
    if frame.time.ndim:
        raise ValueError("These are all the steps of a series, but one is wanted: frame_at(frames(...), 0).")


def check_series(series: Any) -> None:
    """Refuse anything but one series, a batch included."""
    check_instance(series, Series, "series", "Read the values with Series.from_values(values)")
    if series.observations.ndim != 2:
        raise ValueError(
            f"The observations have shape {series.observations.shape}, but a sampler runs over one series, "
            "(steps, dimensions). For a batch use jax.vmap(lambda one: sampler(model, proposal, one, key=key))(batch)."
        )


def check_fit(model: Model, proposal: Proposal, frame: Frame) -> Fit:
    """Refuse a model, proposal and observation that do not fit together; return the noise that the proposal needs."""
    fits = []

    def probe(model: Model, proposal: Proposal, frame: Frame, key: Any):
        memory = model.start(frame.inputs)
        prior = model.initial(memory, frame.inputs)
        law = proposal.initial(prior, frame.context)
        latent = _check_pair(prior, law, "initial", "initial", key)
        # Where something is missing the memory reads draws from the emission, which may be of another dtype.
        observation = frame.observation
        if frame.observed is not None and model.imputes:
            drawn = model.emission(memory, latent, frame.inputs).sample(key)
            observation = observation.astype(jnp.result_type(observation, drawn))
        later = model.advance_with(memory, latent, observation, frame.observed, frame.inputs)
        next_prior = model.transition(later, frame.inputs)
        next_law = proposal.step(next_prior, later, frame.context)
        next_latent = _check_pair(next_prior, next_law, "transition", "step", key)
        _check_same("initial() and transition() draw latents", latent, next_latent)
        _check_same(
            "advance() returned, after the first and the second step, memories",
            later,
            model.advance_with(later, next_latent, observation, frame.observed, frame.inputs),
        )
        # The emission comes last: where a latent or a memory has the wrong shape, it does too.
        _check_emission(model.emission(memory, latent, frame.inputs), frame, key)
        _check_emission(model.emission(later, next_latent, frame.inputs), frame, key)
        rigid = [
            f"{method}() returned {_name(made)}"
            for method, made in (("initial", law), ("step", next_law))
            if not is_reparameterized(made)
        ]
        fits.append(Fit(noise_shape(law), noise_shape(next_law), rigid[0] if rigid else None))

    try:
        eqx.filter_eval_shape(probe, model, proposal, frame, jax.random.key(0))
    except Exception as error:
        given = "None: the series has none" if frame.inputs is None else f"of shape {frame.inputs.shape}"
        error.add_note(
            f"This came up while mcfo tried {type(model).__name__} and {type(proposal).__name__} on one particle and "
            f"one step, with an observation of shape {frame.observation.shape} and inputs {given}."
        )
        raise
    return fits[0]


def _name(distribution: Any) -> str:
    while hasattr(distribution, "base_dist") and type(distribution).__name__ == "Independent":
        distribution = distribution.base_dist
    return type(distribution).__name__


def _check_pair(prior: Any, law: Any, model_method: str, proposal_method: str, key: Any) -> Any:
    """Refuse a proposal and a prior of different event shapes or supports; return a draw."""
    wanted = _check_scalar_density(prior, f"The model's {model_method}()", key)
    latent = wanted if law is prior else _check_scalar_density(law, f"The proposal's {proposal_method}()", key)
    if latent.shape != wanted.shape:
        raise ValueError(
            f"The proposal's {proposal_method}() draws latents of shape {latent.shape}, but the model's "
            f"{model_method}() has event shape {wanted.shape}. Build the proposal for a latent of shape {wanted.shape}."
        )
    _check_support(prior, law, model_method, proposal_method)
    return latent


def _check_scalar_density(distribution: Any, source: str, key: Any) -> Any:
    if isinstance(distribution, type) or not isinstance(distribution, Distribution):
        came = (
            "an array" if isinstance(distribution, jax.Array) else getattr(distribution, "__name__", repr(distribution))
        )
        raise ValueError(
            f"{source} returned {came}, which is not a distribution. Return one of "
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
    """Refuse a proposal whose support is known to differ from the prior's.

    A proposal with a wider support is right if the bounds of the prior's support are its parameters, because the
    prior's density is then zero beyond them; for fixed supports, such as the positive numbers, it would be NaN.
    """
    wanted, given = (_Support.of(getattr(distribution, "support", None)) for distribution in (prior, law))
    if law is prior or wanted is None or given is None:
        return
    reaches = given.lower <= wanted.lower and given.upper >= wanted.upper
    same = given.lower == wanted.lower and given.upper == wanted.upper
    if given.kind != wanted.kind or not (same or (reaches and wanted.adjustable)):
        raise ValueError(
            f"The proposal's {proposal_method}() has support {given.name}, but the model's {model_method}() has "
            f"{wanted.name}: the weights would be wrong or NaN. Propose from a distribution with the model's support, "
            "or transform the latent."
        )


class _Support(NamedTuple):
    name: str
    kind: str
    lower: float
    upper: float
    adjustable: bool

    @classmethod
    def of(cls, support: Any) -> "_Support | None":
        """Return what is known of a support before anything runs; None if too little is known."""
        while isinstance(support, constraints.independent):
            support = support.base_constraint
        if support is None:
            return None
        name = type(support).__name__.strip("_")
        adjustable = name in ("GreaterThan", "GreaterThanEq", "LessThan", "LessThanEq", "Interval", "OpenInterval")
        if not adjustable and name not in ("Real", "Positive", "SoftplusPositive", "Nonnegative", "UnitInterval"):
            return cls(name, name, 0.0, 0.0, adjustable=False)
        lower, upper = getattr(support, "lower_bound", -math.inf), getattr(support, "upper_bound", math.inf)
        if any(isinstance(bound, Tracer) or jnp.ndim(bound) > 0 for bound in (lower, upper)):
            return None
        return cls(name, "continuous", float(lower), float(upper), adjustable)


def _check_emission(emission: Any, frame: Frame, key: Any) -> None:
    value = _check_scalar_density(emission, "The model's emission()", key)
    if value.shape != frame.observation.shape:
        raise ValueError(
            f"The model's emission() has event shape {value.shape}, but an observation has shape "
            f"{frame.observation.shape}. Give the model as many observed dimensions as the data have columns."
        )


def _check_same(what: str, first: Any, second: Any) -> None:
    def described(leaf: Any) -> str:
        return f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}"

    same = jax.tree.structure(first) == jax.tree.structure(second)
    if not same or list(map(described, jax.tree.leaves(first))) != list(map(described, jax.tree.leaves(second))):
        raise ValueError(
            f"{what} that differ: {jax.tree.map(described, first)} and {jax.tree.map(described, second)}. They must "
            "have the same structure, shapes and dtypes."
        )
