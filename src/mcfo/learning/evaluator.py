"""The likelihoods that a run by particles looks at: of held-out series, of averaged parameters, of what was learned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float

from mcfo import exact
from mcfo.data.batching import Buckets
from mcfo.gradients.rules import DEVICES, has_networks
from mcfo.inference.evaluation import (
    Scores,
    combined,
    evaluation_sampler,
    has_predictions,
    repeated_scores,
    series_scores,
    usual_repeats,
)
from mcfo.inference.evaluation_results import Evaluation
from mcfo.inference.exact_evaluation import exact_evaluation
from mcfo.learning.batch_gradients import map_over_seeds
from mcfo.learning.devices import build_mesh, replicate_on
from mcfo.learning.parameters import Modules
from mcfo.learning.settings import Settings
from mcfo.learning.standardization import Standardized
from mcfo.learning.step import compiled
from mcfo.models.base import Model

_EVALUATION_TAG = 0x6576616C
"""Separates the random numbers of evaluations from those of updates."""
_FINAL_PARTICLES = 1000
"""The least number of particles with which the likelihood of a model with few parameters is reported."""


class Evaluator:
    """Estimates of the log-likelihood, each with the random numbers of its seed: the same ones every time.

    **Arguments:**

    - `standard`: what is learned from, in the units in which it is learned.
    - `data`, `validation`: the series in their own unit.
    - `particles`: the number of particles of the filter whose bound is maximized.
    """

    def __init__(
        self,
        standard: Standardized,
        modules: Modules,
        data: Buckets,
        validation: Buckets | None,
        settings: Settings,
        particles: int,
    ):
        self._standard, self._data, self._validation, self._settings = standard, data, validation, settings
        few, asked = not has_networks(modules.model, modules.proposal), settings.evaluation_particles
        self.particles = asked or particles
        self._final_particles = asked or (max(particles, _FINAL_PARTICLES) if few else particles)
        self._repeats = usual_repeats(modules.model, modules.proposal)
        self._predicts = has_predictions(modules.model, data[0])

    @property
    def looks(self) -> bool:
        """Whether the likelihood is estimated well enough to say that nothing improves."""
        return self._repeats > 1 and self._settings.tolerance > 0

    def look(self, modules: Modules, seed: int) -> tuple[float, ...]:
        """Estimate the log-likelihood of all series, in their own unit, by several filters."""
        return self._totals(self._runs(modules, self._standard.data, seed, self._repeats))

    def _totals(self, runs: list[Scores]) -> tuple[float, ...]:
        """The log-likelihood of all series from each of several filters."""
        return tuple(float(np.sum(one.log_evidence, dtype=float)) + self._standard.log_jacobian for one in runs)

    def _runs(self, modules: Modules, data: Buckets, seed: int, repeats: int) -> list[Scores]:
        """Filter the series several times, always with the same random numbers."""
        return repeated_scores(
            modules.model,
            modules.proposal,
            data,
            particles=self._final_particles,
            repeats=repeats,
            predicts=self._predicts,
            key=self._evaluation_key(seed),
            scale=self._standard.scale,
        )

    def finish(self, learned: Modules, model: Model, seed: int) -> tuple[Evaluation, tuple[float, ...]]:
        """Evaluate what a seed has learned, and look at it.

        **Arguments:**

        - `learned`: in standard units.
        - `model`: the same model in the data's unit.
        """
        data, standard = self._data, self._standard
        if self._validation is not None:
            data, standard = self._validation, self._standard.of_other(self._validation)
        repeats = 1 if self._settings.evaluation_particles else self._repeats
        runs = self._runs(learned, standard.data, seed, repeats)
        known = exact_evaluation(model, data).nll_per_step if exact.is_exact(model) else None
        found = combined(runs, self._final_particles, known, predicts=self._predicts)
        found = found.moved(standard.log_jacobian, known)
        if not self.looks:
            return found, ()
        same = self._validation is None and repeats == self._repeats
        return found, self._totals(runs) if same else self.look(learned, seed)

    def _evaluation_key(self, seed: Any) -> Any:
        return jax.random.fold_in(jax.random.key(seed), _EVALUATION_TAG)

    def compile_validation(
        self, validation: Buckets, rest: Modules, seeds: Any, training_mesh: Mesh
    ) -> Callable[[Modules], tuple[Array, Array]]:
        """Compile the NLL per step and the mean effective sample size of each seed, with common random numbers."""
        standard = self._standard.of_other(validation)
        buckets, log_jacobian = standard.data, standard.log_jacobian
        sampler = evaluation_sampler(self.particles)
        fixed, static = eqx.partition(rest, eqx.is_array)
        divides = all(len(batch.observations) % training_mesh.size == 0 for batch in buckets)
        mesh = training_mesh if divides else build_mesh(1, DEVICES)

        def compute(learned: Modules, fixed: Modules, buckets: Buckets, seeds: Array) -> tuple[Array, Array]:
            def one(learned: Modules, seed: Array) -> Float[Array, " 4"]:
                modules = eqx.combine(learned, fixed, static).current()
                key = self._evaluation_key(seed)
                total = jnp.zeros(4)
                for batch in buckets:
                    scores: Scores = series_scores(sampler, modules.model, modules.proposal, batch, key=key)
                    parts = scores.log_evidence, scores.ess_sum, scores.steps, scores.observed_steps
                    total = total + jnp.stack([jnp.sum(part) for part in parts])
                return total

            sums = map_over_seeds(one, learned, seeds)
            if mesh.size > 1:
                sums = jax.lax.psum(sums, DEVICES)
            return -(sums[:, 0] + log_jacobian) / sums[:, 3], sums[:, 1] / sums[:, 2]

        whole = PartitionSpec()
        program = compiled(compute, mesh, (whole, whole, PartitionSpec(DEVICES), whole))
        fixed, data, seeds = (replicate_on(mesh, tree) for tree in (fixed, buckets, seeds))
        return lambda learned: program(replicate_on(mesh, learned), fixed, data, seeds)
