"""Recurrent models, for binary vectors such as piano-rolls."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from mcfo.catalogue.deep import check_binary
from mcfo.catalogue.start import Impossible, Start, observed
from mcfo.files import InputError
from mcfo.models.recurrent import SRNN, VRNN
from mcfo.proposals.recurrent import RecurrentProposal
from mcfo.sequences import Sequence
from mcfo.suggestions import nearest

_PROPOSALS = ("residual", "plain")


def _begin(
    kind: type[VRNN] | type[SRNN],
    sequences: list[Sequence],
    gaps: bool = False,
    *,
    latent: int = 64,
    hidden: int = 64,
    units: int = 64,
    proposal: str = "residual",
    network_seed: int = 0,
) -> Start:
    """Begins with an emission whose mean is the data's; a residual proposal begins near the prior."""
    for name, value in {"latent": latent, "hidden": hidden, "units": units}.items():
        if value < 1:
            raise InputError(f"The option {name} must be at least 1, but got {value}.")
    if proposal not in _PROPOSALS:
        raise InputError(f"There is no proposal {proposal!r}. {nearest(proposal, _PROPOSALS)}")
    values = observed(sequences)
    dimensions = values.shape[1]
    # With half an observation of either kind, so that no key begins as certain.
    count = np.sum(~np.isnan(values), axis=0)
    frequencies = (np.nanmean(values, axis=0) * count + 0.5) / (count + 1)
    of_model, of_proposal = jax.random.split(jax.random.key(network_seed))
    model = kind(dimensions, key=of_model, latent=latent, hidden=hidden, units=units, frequencies=frequencies)
    law = RecurrentProposal(
        dimensions,
        latent,
        hidden,
        key=of_proposal,
        units=units,
        centre=frequencies,
        residual=proposal == "residual",
    )
    return Start(model, law, ("model.centre", "proposal.centre"))


vrnn = partial(_begin, VRNN)
srnn = partial(_begin, SRNN)


def check_recurrent(values: np.ndarray, options: Mapping[str, Any]) -> Impossible | None:
    return check_binary(values, "The recurrent models want zeros and ones; for real numbers use the model deep.")
