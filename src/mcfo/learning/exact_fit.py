"""A fit by maximum likelihood, for models whose likelihood is exact: its lines, its folder and its result."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mcfo import exact, interrupts
from mcfo.data.batching import as_buckets, count_observed_steps
from mcfo.errors import InputError
from mcfo.inference.exact_evaluation import exact_evaluation
from mcfo.learning import maximum_likelihood as search
from mcfo.learning.coordinates import Coordinates
from mcfo.learning.parameters import Modules, finite_or_none, split
from mcfo.learning.priors import Priors
from mcfo.learning.progress import Listener
from mcfo.learning.results import Convergence, Fitted, SeedFit, results_data
from mcfo.learning.run_folder import RunFolder, build_config
from mcfo.learning.settings import Settings
from mcfo.learning.standardization import as_given, coordinate_units, standardize
from mcfo.models.base import Model
from mcfo.precision import in_float64, settled, widened
from mcfo.series import Series

STARTS = 8
"""Starts of each seed: the given parameters, and others around them."""
_METHOD = f"L-BFGS with {search.MEMORY} pairs from {STARTS} starts"

_Data = Series | Sequence[Series]


class ExactRun:
    """What determines a fit by maximum likelihood, and the searches that it makes."""

    devices = 1
    precision = "float64"

    def __init__(self, modules: Modules, data: _Data, validation: _Data | None, settings: Settings):
        if not exact.is_exact(modules.model):
            raise InputError(
                f"The likelihood of a {type(modules.model).__name__} has no exact form to maximize. Name an objective "
                "that estimates it, such as mcfo."
            )
        # What the model learned is stored as it was found, and not rounded to the precision of the session.
        self.modules: Modules = widened(modules)
        self.settings = settings
        self.data = as_buckets(data)
        self.validation = None if validation is None else as_buckets(validation)
        sizes = [buckets[0].observations.shape[2] for buckets in (self.data, self.validation or self.data)]
        if sizes[0] != sizes[1]:
            raise InputError(
                f"The series have {sizes[0]} observed dimensions, but the validation data have {sizes[1]}. Give both "
                "the same columns."
            )
        self._standard = standardize(self.modules, self.data, settings.fixed)
        standard = Modules(self._standard.model, self.modules.proposal)
        learned, rest = split(standard, settings.fixed)
        if not jax.tree.leaves(learned.model):
            raise InputError("Nothing is left to learn: every parameter of the model is fixed. Fix fewer of them.")
        units, priors = coordinate_units(learned.model, self._standard), None
        if settings.priors:
            # A prior is about parameters in the unit of the data, so that the search is too, in steps of the others.
            priors = Priors.build(settings.priors, Coordinates.build(self.modules.model, settings.fixed))
            if self._standard.units is not None:
                units = units * self._standard.steps(learned.model)
                self._standard = as_given(self.data, self.modules)
                learned, rest = split(self.modules, settings.fixed)
        self._problem = search.Problem.build(learned.model, rest.model, self._standard.data, units, priors)
        self._values = self._problem.values
        self._steps = sum(map(count_observed_steps, self.data))
        self._series = sum(len(batch.observations) for batch in self.data)

    def optimizer_digest(self) -> str:
        """A hash of the method."""
        return hashlib.sha256(_METHOD.encode()).hexdigest()

    def objective_data(self) -> dict[str, Any]:
        """What config.json says about the objective."""
        return {"name": "exact", "method": _METHOD, "theta": None, "phi": None, "backward": None}

    def run(self, listener: Listener, folder: RunFolder | None) -> Fitted:
        """Search from all starts of all seeds at once, and return the best of each seed."""
        seeds, began = self.settings.seeds, time.perf_counter()
        starts = np.concatenate([search.perturbations(self._problem.learned, STARTS, seed) for seed in seeds])
        lines: list[dict[str, Any]] = []
        listener.begin(self.settings.steps, 0, 0)
        progress, total = None, 0
        for progress in search.maximize(self._problem, starts, most=self.settings.steps):
            new = self._lines(progress, total, time.perf_counter() - began)
            total += progress.rounds
            lines += new
            listener.update(new[-len(seeds) :])
            if folder is not None:
                folder.log(new)
            interrupts.check()
        listener.stage("evaluating")
        assert progress is not None
        found = [self._best(progress.search, index) for index in range(len(seeds))]
        return self._fitted(found, lines, total, began)

    def _lines(self, progress: search.Progress, before: int, seconds: float) -> list[dict[str, Any]]:
        """One line for each round and seed: the best log-likelihood so far, and the gradient there."""
        lines = []
        for index in range(progress.rounds):
            for lane, seed in enumerate(self.settings.seeds):
                own = slice(lane * STARTS, (lane + 1) * STARTS)
                values = progress.log_likelihoods[index, own] + self._standard.log_jacobian
                best = int(np.argmax(np.where(np.isnan(values), -np.inf, values)))
                lines.append(
                    {
                        "seed": seed,
                        "step": before + index + 1,
                        "loss": finite_or_none(-values[best] / self._series),
                        "log_evidence_per_step": finite_or_none(values[best] / self._steps),
                        "ess": None,
                        "grad_norm_theta": finite_or_none(progress.gradient_norms[index, own][best]),
                        "grad_norm_phi": None,
                        "skipped": 0,
                        "seconds": round(seconds, 3),
                    }
                )
        return lines

    def _best(self, found: search.Search, index: int) -> tuple[np.ndarray, Convergence]:
        own = slice(index * STARTS, (index + 1) * STARTS)
        values = np.asarray(found.value)[own]
        if not np.isfinite(values).any():
            raise InputError(
                "The likelihood is not finite at any start. Look for absurd values in the data, or start from other "
                "parameters."
            )
        best = int(np.argmin(np.where(np.isfinite(values), values, np.inf)))
        point = np.asarray(found.point)[own][best]
        log_likelihood = -float(values[best]) * self._values
        lanes = STARTS * len(self.settings.seeds)
        bounds = search.at_bounds(self._problem, point, log_likelihood, lanes=lanes)
        norm = float(np.max(np.abs(np.asarray(found.gradient)[own][best]))) * self._values
        reached = tuple(
            finite_or_none(-value * self._values + self._standard.log_jacobian) for value in values.tolist()
        )
        return point, Convergence(bool(np.asarray(found.done)[own][best]), norm, tuple(bounds), reached)

    def _fitted(
        self, found: list[tuple[np.ndarray, Convergence]], lines: list[dict[str, Any]], steps: int, began: float
    ) -> Fitted:
        evaluated = self.data if self.validation is None else self.validation
        seeds = []
        for seed, (point, convergence) in zip(self.settings.seeds, found, strict=True):
            model = settled(_canonical(self._standard.restored(search.at_point(self._problem, point))))
            proposal = settled(self.modules.proposal.following(model))
            evaluation = exact_evaluation(model, evaluated)
            seeds.append(SeedFit(seed, model, proposal, evaluation, 0, None, convergence))
        ended = all(convergence.converged for _, convergence in found)
        return Fitted(
            seeds=tuple(seeds),
            metrics=tuple(lines),
            settings=self.settings,
            steps=steps,
            seconds=time.perf_counter() - began,
            selected="maximum",
            evaluated_on="data" if self.validation is None else "validation",
            stopped="converged" if ended else "finished",
            buckets=self.data,
        )


@in_float64
def _canonical(model: Model) -> Model:
    return model.canonical()


def fit_exactly(
    modules: Modules,
    data: _Data,
    validation: _Data | None,
    settings: Settings,
    *,
    out: str | Path | None,
    resume: bool,
    listener: Listener,
    about: Mapping[str, Any],
) -> Fitted:
    """Maximize the exact likelihood; a resumed run starts again, because it takes seconds."""
    run = ExactRun(modules, data, validation, settings)
    folder = None if out is None else RunFolder(Path(out), build_config(run, dict(about)), resume=resume)
    try:
        if folder is not None:
            folder.restart()
        with listener, interrupts.deferred():
            fitted = run.run(listener, folder)
        if folder is not None:
            arrays = fitted.arrays()
            folder.save_result(fitted.steps, arrays)
            folder.finish(results_data(fitted), arrays)
    finally:
        if folder is not None:
            folder.close()
    return fitted
