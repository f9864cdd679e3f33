"""The unbiased score as a surrogate: its gradient is estimated by coupled chains, and not by differentiating them."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from mcfo.gradients.draws import Run
from mcfo.gradients.replay import frozen
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Series
from mcfo.smc.coupled import CoupledChains, complete, start
from mcfo.smc.trajectory import path_score
from mcfo.types import Key, Scalar


def unbiased_run(
    chains: CoupledChains, model: Model, proposal: Proposal, batch: Series, key: Key
) -> tuple[Scalar, Run]:
    """A scalar whose gradient by the model is the sum of the series' unbiased scores, and how the first filter of each
    went."""
    numbers = frozen(model), frozen(proposal)

    def of_series(series: Series) -> Any:
        setting = chains, *numbers, series, path_score
        pair = complete(*setting, start(*setting, jax.random.fold_in(key, series.series_id)))
        return pair.total, pair.log_evidence, pair.record

    scores, log_evidence, record = jax.vmap(of_series)(batch)
    score = jax.lax.stop_gradient(jax.tree.map(lambda array: jnp.sum(array, axis=0), scores))
    products = jax.tree.map(lambda one, array: jnp.vdot(one, array), score, eqx.filter(model, eqx.is_inexact_array))
    return sum(jax.tree.leaves(products), start=jnp.zeros(())), Run(log_evidence, record)
