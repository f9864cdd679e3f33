"""Distributions that a prior may have, by name or as objects of numpyro."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpyro.distributions as dist

from mcfo.errors import InputError, nearest

KINDS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "normal": (dist.Normal, ("mean", "scale")),
    "student-t": (dist.StudentT, ("degrees", "mean", "scale")),
    "half-normal": (dist.HalfNormal, ("scale",)),
    "half-cauchy": (dist.HalfCauchy, ("scale",)),
    "log-normal": (dist.LogNormal, ("mean", "scale")),
    "exponential": (dist.Exponential, ("rate",)),
    "gamma": (dist.Gamma, ("shape", "rate")),
    "inverse-gamma": (dist.InverseGamma, ("shape", "scale")),
    "beta": (dist.Beta, ("a", "b")),
    "uniform": (dist.Uniform, ("low", "high")),
}
"""Priors by name, and what their numbers are: half-normal:1, normal:0,2."""
_EXAMPLE = "Examples: half-normal:1 and normal:0,2."


def read_prior(prior: Any, name: str) -> Any:
    """Return the distribution that a text names."""
    if isinstance(prior, dist.Distribution):
        return prior
    if not isinstance(prior, str):
        raise InputError(
            f"The prior on {name} is {prior!r}. Give a text such as 'half-normal:1', or a distribution of numpyro."
        )
    kind, _, text = prior.partition(":")
    if kind not in KINDS:
        raise InputError(f"There is no prior {kind!r} ({name}). {nearest(kind, KINDS)}")
    family, names = KINDS[kind]
    try:
        numbers = [float(word) for word in text.split(",")] if text else []
        if len(numbers) != len(names):
            raise ValueError(f"{len(numbers)} numbers")
        family(*numbers, validate_args=True)
    except ValueError as error:
        raise InputError(
            f"The prior {prior!r} on {name} is not of the form {kind}:{','.join(names).upper()}, or its numbers are "
            f"impossible. {_EXAMPLE}"
        ) from error
    return family(*numbers, validate_args=False)


def prior_text(prior: Any) -> str:
    """Return a prior as config.json holds it."""
    if isinstance(prior, str):
        return prior
    numbers = {name: np.asarray(getattr(prior, name)).tolist() for name in getattr(prior, "arg_constraints", {})}
    return f"{type(prior).__name__}({', '.join(f'{name}={value}' for name, value in numbers.items())})"
