"""Which standard errors a fit has: exact ones, those of a likelihood by particles, or those of the filter score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from mcfo import exact
from mcfo.data.batching import Buckets
from mcfo.gradients.rules import has_networks
from mcfo.learning.coordinates import MOST, Coordinates
from mcfo.learning.parameters import Modules, split
from mcfo.learning.particle_information import curvature_information, filter_score_information
from mcfo.learning.standard_errors import Uncertainty, describe_uncertainty, exact_uncertainty
from mcfo.models.base import MarkovModel, Model
from mcfo.proposals.base import Proposal

_TAG = 0x63757276
_ROUGH = 0.1
"""The relative Monte Carlo error of an information above which the standard errors say so."""


def model_uncertainty(
    model: Model,
    proposal: Proposal,
    data: Buckets,
    *,
    fixed: Sequence[str] = (),
    rule: str | None = None,
    at_bounds: Sequence[str] = (),
    priors: Any = None,
    seed: int = 0,
) -> Uncertainty | None:
    """Return the uncertainty of fitted parameters; None for networks, whose weights mean nothing one by one.

    **Arguments:**

    - `fixed`: the parameters that were not learned.
    - `rule`: the gradient rule by which θ was learned; "filter-score" has a covariance of its own.
    - `at_bounds`: the stored numbers that the likelihood wants at minus infinity.
    """
    learned = jax.tree.leaves(split(Modules(model, proposal), fixed)[0].model)
    if has_networks(model, proposal) or not 0 < sum(np.size(leaf) for leaf in learned) <= MOST:
        return None
    by_filter_score = rule is not None and rule.startswith("filter-score") and isinstance(model, MarkovModel)
    if exact.is_exact(model) and not by_filter_score:
        return exact_uncertainty(model, data, fixed, priors=priors, at_bounds=at_bounds)
    coordinates = Coordinates.build(model, fixed)
    key = jax.random.fold_in(jax.random.key(seed), _TAG)
    if by_filter_score:
        method, found = "sandwich of the filter score", filter_score_information(coordinates, proposal, data, key=key)
    else:
        method = "curvature of the likelihood by particles"
        found = curvature_information(coordinates, proposal, data, key=key, priors=priors)
    mean, error = found.information.mean(axis=0), _relative_error(found.information)
    result = describe_uncertainty(
        coordinates,
        mean,
        method=method,
        at_bounds=at_bounds,
        least=max(2 * error, 1e-6),
        noise=None if found.noise is None else found.noise.mean(axis=0),
    )
    if error <= _ROUGH:
        return result
    text = f"The information has a relative Monte Carlo error of {error:.0%}: the standard errors are rough."
    return result._replace(notes=(*result.notes, text))


def _relative_error(informations: np.ndarray) -> float:
    """The Monte Carlo standard error of the mean information, with unit diagonal: the root mean square of its
    entries."""
    mean = informations.mean(axis=0)
    lengths = np.sqrt(np.maximum(np.abs(np.diag(mean)), np.finfo(float).tiny))
    scaled = informations / np.outer(lengths, lengths)
    return float(np.sqrt(np.mean(np.var(scaled, axis=0, ddof=1)) / len(informations)))
