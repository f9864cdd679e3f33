"""Deep and recurrent models, initialized near the data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np

from mcfo.catalogue.from_data import Impossible, Start, Widths, observed
from mcfo.errors import InputError, nearest
from mcfo.models.deep import EMISSIONS, DeepMarkov
from mcfo.models.recurrent import SRNN, VRNN
from mcfo.proposals.amortized import Amortized, RecurrentProposal
from mcfo.series import Series

_ROWS = 2000
"""The largest number of rows for principal components."""
_ROUNDING = 1e-6
"""The relative precision of float32, with some margin."""


def deep(
    series_list: list[Series],
    gaps: bool = False,
    *,
    emission: str = "",
    latent: int = 3,
    traces: int = 0,
    transition_units: Widths = Widths((64,)),
    emission_units: Widths = Widths((16, 64, 512, 2048)),
    encoder_units: Widths = Widths((128, 32)),
    proposal_units: Widths = Widths((32,)),
    network_seed: int = 0,
) -> Start:
    """Build a deep model whose emission has the data's mean, with a proposal at their principal components.

    The default emission is Bernoulli for zeros and ones, otherwise Gaussian.
    """
    if latent < 1:
        raise InputError(f"The option latent must be at least 1, but got {latent}.")
    if not 0 <= traces <= latent:
        raise InputError(f"The option traces must be from 0 to {latent}, as latent is, but got {traces}.")
    if emission not in ("", *EMISSIONS):
        raise InputError(f"There is no emission {emission!r}. {nearest(emission, EMISSIONS)}")
    values = observed(series_list)
    kind = emission or ("bernoulli" if np.isin(values[~np.isnan(values)], (0, 1)).all() else "gaussian")
    dimensions = values.shape[1]
    if kind == "bernoulli":
        mean, scale = _frequencies(values), np.ones(dimensions)
        emission_start: dict[str, Any] = {"bias": np.log(mean / (1 - mean))}
    else:
        mean, spread = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
        # A column that varies by rounding alone counts as constant.
        scale = np.where(spread > _ROUNDING * np.abs(mean), spread, 1.0)
        emission_start = {"center": mean, "scale": scale}
    of_model, of_proposal = jax.random.split(jax.random.key(network_seed))
    # Compiled, or each operation would be compiled by itself.
    model = eqx.filter_jit(DeepMarkov)(
        dimensions,
        key=of_model,
        latent=latent,
        traces=traces,
        transition=transition_units,
        emission=emission_units,
        kind=kind,
        **emission_start,
    )
    proposal = eqx.filter_jit(Amortized)(
        dimensions,
        latent,
        key=of_proposal,
        encoder=encoder_units,
        hidden=proposal_units,
        traces=traces,
        directions=_principal(values, mean, scale, latent),
        center=mean,
        scale=scale,
    )
    owners = ("proposal",) if kind == "bernoulli" else ("model", "proposal")
    fixed = tuple(f"{owner}.{name}" for owner in owners for name in ("center", "scale"))
    return Start(model, proposal, fixed, {} if emission else {"emission": kind})


def _frequencies(values: np.ndarray) -> np.ndarray:
    """Return how often each column is one. Half an observation of either kind is added, so that none is certain."""
    count = np.sum(~np.isnan(values), axis=0)
    return (np.nanmean(values, axis=0) * count + 0.5) / (count + 1)


def _principal(values: np.ndarray, center: np.ndarray, scale: np.ndarray, count: int) -> np.ndarray:
    """Return at most `count` principal components of (values - center) / scale; missing values count as zero.

    They are scaled such that their products with the rows have size one.
    """
    values = np.nan_to_num((values[:: -(-len(values) // _ROWS)] - center) / scale)
    # The Gram matrix of the rows has the same nonzero eigenvalues, and may be smaller.
    tall = len(values) >= values.shape[1]
    squares, vectors = np.linalg.eigh(values.T @ values if tall else values @ values.T)
    directions = []
    for index in range(min(count, int((squares > 1e-9 * squares[-1]).sum()))):
        vector = vectors[:, -1 - index] if tall else values.T @ vectors[:, -1 - index]
        vector = vector * np.sign(vector[np.argmax(np.abs(vector))])
        directions.append(vector * np.sqrt(len(values)) / np.linalg.norm(values @ vector))
    return np.reshape(directions, (-1, values.shape[1]))


def check_deep(values: np.ndarray, options: Mapping[str, Any]) -> Impossible | None:
    """Return the first value that the emission cannot explain, or None."""
    if options.get("emission") != "bernoulli":
        return None
    return _check_binary(values, "The emission bernoulli wants these two; use emission=gaussian.")


def _check_binary(values: np.ndarray, remedy: str) -> Impossible | None:
    return Impossible.first(~np.isnan(values) & ~np.isin(values, (0, 1)), f"is neither 0 nor 1. {remedy}")


_PROPOSALS = ("residual", "plain")


def _recurrent(
    kind: type[VRNN] | type[SRNN],
    series_list: list[Series],
    gaps: bool = False,
    *,
    latent: int = 64,
    hidden: int = 64,
    units: int = 64,
    proposal: str = "residual",
    network_seed: int = 0,
) -> Start:
    """Build a recurrent model whose emission has the data's mean; a residual proposal is initially near the prior."""
    for name, value in {"latent": latent, "hidden": hidden, "units": units}.items():
        if value < 1:
            raise InputError(f"The option {name} must be at least 1, but got {value}.")
    if proposal not in _PROPOSALS:
        raise InputError(f"There is no proposal {proposal!r}. {nearest(proposal, _PROPOSALS)}")
    values = observed(series_list)
    dimensions = values.shape[1]
    frequencies = _frequencies(values)
    of_model, of_proposal = jax.random.split(jax.random.key(network_seed))
    model = kind(dimensions, key=of_model, latent=latent, hidden=hidden, units=units, frequencies=frequencies)
    recurrent_proposal = RecurrentProposal(
        dimensions, latent, hidden, key=of_proposal, units=units, center=frequencies, residual=proposal == "residual"
    )
    return Start(model, recurrent_proposal, ("model.center", "proposal.center"))


vrnn = partial(_recurrent, VRNN)
srnn = partial(_recurrent, SRNN)


def check_recurrent(values: np.ndarray, options: Mapping[str, Any]) -> Impossible | None:
    """Return the first value that is not binary, or None."""
    return _check_binary(values, "The recurrent models want zeros and ones; for real numbers use the model deep.")
