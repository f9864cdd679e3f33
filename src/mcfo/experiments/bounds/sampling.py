"""Draws of log R_t and log p̂ for the bounds, in chunks that fit into memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from rich.progress import Progress

from mcfo.experiments.bounds.exact_histories import Blocks, in_blocks
from mcfo.experiments.bounds.problems import Problem
from mcfo.kalman import kalman_filter
from mcfo.models.linear_gaussian import LinearGaussian
from mcfo.proposals.gaussian import AffineGaussian
from mcfo.series import Series
from mcfo.smc.filter import SMC, sis
from mcfo.types import Key

_CHUNK = 2**20
"""Weights that are drawn at once: a few hundred megabytes at most with all that is made from them."""


class Sampled:
    """Draws replicates in chunks that fit into memory, and shows how far it is."""

    def __init__(self, progress: Progress):
        self._progress = progress

    def blocks(
        self,
        draw: Callable[..., Blocks],
        problem: Problem,
        proposal: AffineGaussian,
        series: Series,
        sizes: tuple[int, ...],
        replicates: int,
        *,
        key: Key,
        name: str,
    ) -> Blocks:
        """The blocks of weights, one row a replicate.

        **Arguments:**

        - `draw`: [`exact_history_blocks`][] or [`path_blocks`][].
        """
        return self._repeat(
            lambda keys: draw(problem.model, proposal, series, sizes, keys),
            replicates,
            sizes[-1] * series.steps,
            key=key,
            name=name,
        )

    def smc(
        self,
        sampler: SMC,
        problem: Problem,
        proposal: AffineGaussian,
        series: Series,
        replicates: int,
        *,
        key: Key,
        name: str,
    ) -> Float[np.ndarray, "replicates steps"]:
        """log p̂(x_1:t) / p(x_1:t) for every t: the beginning of a run is a run on the beginning of the series."""
        return self._repeat(
            lambda keys: _log_ratios(sampler, problem.model, proposal, series, keys),
            replicates,
            sampler.particles * series.steps,
            key=key,
            name=name,
        )

    def _repeat(self, sample: Callable[[jax.Array], Any], replicates: int, weights: int, *, key: Key, name: str) -> Any:
        chunk = max(1, min(replicates, _CHUNK // weights))
        task = self._progress.add_task(name, total=replicates)
        parts = []
        for number in range(-(-replicates // chunk)):
            drawn = sample(jax.random.split(jax.random.fold_in(key, number), chunk))
            parts.append(jax.tree.map(np.asarray, drawn))
            self._progress.update(task, completed=min(replicates, (number + 1) * chunk))
        self._progress.remove_task(task)
        return jax.tree.map(lambda *each: np.concatenate(each)[:replicates], *parts)


@eqx.filter_jit
def _log_ratios(
    sampler: SMC, model: LinearGaussian, proposal: AffineGaussian, series: Series, keys: jax.Array
) -> Array:
    exact = kalman_filter(model, series).log_evidences
    increments = jax.vmap(lambda key: sampler(model, proposal, series, key=key).record.log_evidence)(keys)
    return jnp.cumsum(increments - exact, axis=-1)


@eqx.filter_jit
def path_blocks(
    model: LinearGaussian, proposal: AffineGaussian, series: Series, sizes: tuple[int, ...], keys: jax.Array
) -> Blocks:
    """The blocks of weights of whole paths that are never resampled."""
    exact = kalman_filter(model, series).log_evidence

    def replicate(key: Key) -> Blocks:
        trace = sis(sizes[-1])(model, proposal, series, key=key)
        log_paths = trace.state.log_weights + jnp.log(sizes[-1]) + trace.log_evidence
        return in_blocks(log_paths - exact, sizes)

    return jax.vmap(replicate)(keys)
