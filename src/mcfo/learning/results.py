"""The result of a fit: models, proposals, metrics and evaluations, in memory and as data for results.json."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from mcfo.errors import InputError
from mcfo.inference.datasets import NamedSeries
from mcfo.inference.evaluation import Evaluation
from mcfo.learning.coordinates import Coordinates
from mcfo.learning.fitted_model import FittedModel
from mcfo.learning.looks import Look, clear_loss, last_gain
from mcfo.learning.parameters import Modules, named_arrays
from mcfo.learning.priors import Priors
from mcfo.learning.readable import finite_lists, readable_arrays, readable_fixed
from mcfo.learning.settings import Settings
from mcfo.learning.standard_errors import ParameterRow, Uncertainty
from mcfo.learning.uncertainty import model_uncertainty
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal

_Model = TypeVar("_Model", bound=Model)
_Proposal = TypeVar("_Proposal", bound=Proposal)

LOW_SAMPLE_SIZE = 0.05
"""ESS over K below which a filter's estimates rest on a few particles."""
_PARTS = 10
"""Parts of a run whose mean bounds are compared."""
_LISTED = 64
"""The largest number of entries with which an array is listed in results.json; model.npz has all arrays."""


@dataclass(frozen=True)
class Convergence:
    """How a search for the maximum of an exact likelihood ended.

    - `converged`: whether it ended because nothing improved, and not because its steps were used up.
    - `gradient_norm`: the largest derivative of the log-likelihood, in standard units.
    - `at_bounds`: the parameters that the likelihood wants at minus infinity, such as the logarithm of a zero variance.
    - `log_likelihoods`: those that were reached from each start; None where it was not finite.
    """

    converged: bool
    gradient_norm: float
    at_bounds: tuple[str, ...]
    log_likelihoods: tuple[float | None, ...]

    def as_data(self) -> dict[str, Any]:
        """Return what results.json holds."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}


@dataclass(frozen=True)
class SeedFit(Generic[_Model, _Proposal]):
    """The result of one seed.

    - `skipped`: the number of updates that were not finite and were skipped.
    - `best_step`: the number of updates after which the validation NLL was lowest.
    - `convergence`: how the search ended, if the likelihood is exact.
    - `looks`: the likelihood at the start, after some of the updates, and of what is returned; of models with few
      parameters that are learned by particles.
    """

    seed: int
    model: _Model = field(repr=False)
    proposal: _Proposal = field(repr=False)
    evaluation: Evaluation
    skipped: int
    best_step: int | None
    convergence: Convergence | None = None
    looks: tuple[Look, ...] = ()


@dataclass(frozen=True, repr=False)
class Fitted(FittedModel, Generic[_Model, _Proposal]):
    """The result of [`fit`][]. `model` and `proposal` are those of the seed with the lowest NLL; `seeds` has all.

        fitted = mcfo.fit("structural", passengers, season=12)  # a pandas Series
        print(fitted.summary())
        fitted.predict(12)  # a data frame that continues the dates
        fitted.plot_components()

    `rule` is the gradient rule by which the model was learned, None for an exact likelihood.

    `data` has the series that it learned from, with their names and times; `name` says what the model is.

    `stopped` says why it ended: "converged" (nothing improved), "early" (nothing improved on the validation data within
    the patience) or "finished" (all updates were made).
    """

    seeds: tuple[SeedFit[_Model, _Proposal], ...]
    metrics: tuple[dict[str, Any], ...]
    settings: Settings
    steps: int
    seconds: float
    selected: str
    evaluated_on: str
    stopped: str
    data: NamedSeries | None = None
    name: str = ""
    rule: str | None = None
    buckets: Any = field(default=None, repr=False, compare=False)

    @cached_property
    def uncertainties(self) -> tuple[Uncertainty | None, ...]:
        """Standard errors and intervals for each seed, computed when they are first asked for; None for networks."""
        wanted, first = self.settings.priors, self.seeds[0].model
        priors = Priors.build(wanted, Coordinates.build(first, self.settings.fixed)) if wanted else None
        return tuple(
            model_uncertainty(
                one.model,
                one.proposal,
                self.buckets,
                fixed=self.settings.fixed,
                rule=self.rule,
                at_bounds=() if one.convergence is None else one.convergence.at_bounds,
                priors=priors,
                seed=one.seed,
            )
            for one in self.seeds
        )

    @property
    def uncertainty(self) -> Uncertainty | None:
        """The standard errors and intervals of the best seed."""
        best = self.best
        return next(own for one, own in zip(self.seeds, self.uncertainties, strict=True) if one is best)

    @property
    def best(self) -> SeedFit[_Model, _Proposal]:
        """The seed with the lowest NLL."""

        def nll(one: SeedFit) -> float:
            return math.inf if math.isnan(one.evaluation.nll_per_step) else one.evaluation.nll_per_step

        return min(self.seeds, key=nll)

    @property
    def model(self) -> _Model:
        """The model of the best seed."""
        return self.best.model

    @property
    def proposal(self) -> _Proposal:
        """The proposal of the best seed."""
        return self.best.proposal

    @property
    def evaluation(self) -> Evaluation:
        """The evaluation of the best seed."""
        return self.best.evaluation

    @property
    def exact(self) -> bool:
        """Whether an exact likelihood was maximized."""
        return all(one.convergence is not None for one in self.seeds)

    @property
    def warnings(self) -> list[str]:
        """What to worry about, in sentences."""
        return _warnings(self)

    @property
    def reason(self) -> str | None:
        """Why a run by particles ended before its limit, in a sentence; None where it did not."""
        if self.exact or self.stopped == "finished":
            return None
        most = f"Stopped after {self.steps} of at most {self.settings.steps} updates: "
        if self.stopped == "early":
            return f"{most}the validation NLL fell no more."
        gain, error = last_gain(self.metrics)
        return (
            f"{most}the last {self.steps // 2} of them gained {gain:.2g} nats of log-likelihood (standard error "
            f"{error:.2g}), and the tolerance is {self.settings.tolerance:g}."
        )

    @property
    def skipped(self) -> int:
        """The number of skipped updates, over all seeds."""
        return sum(one.skipped for one in self.seeds)

    @property
    def title(self) -> str:
        """The name of the model and its options."""
        return self.name or type(self.model).__name__

    @property
    def history(self) -> NamedSeries:
        """The series that it learned from, with their names and times."""
        if self.data is None:
            raise InputError("The data are not known any more. Give them.")
        return self.data

    @property
    def on_learning_data(self) -> bool:
        """Whether the evaluation is of the data that it learned from."""
        return self.evaluated_on == "data"

    @property
    def fixed(self) -> Sequence[str]:
        """The parameters that were not learned."""
        return self.settings.fixed

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of model and proposal by name, with a leading axis over the seeds."""
        each = [named_arrays(Modules(one.model, one.proposal)) for one in self.seeds]
        return {name: np.stack([np.asarray(arrays[name]) for arrays in each]) for name in each[0]}


def parameter_table(fitted: Fitted) -> list[ParameterRow]:
    """Return the learned parameters of the model with the best seed, as people mean them: estimate, standard error and
    95 % interval. A parameter that the data do not determine has None; long arrays of networks are left out."""
    if fitted.uncertainty is not None:
        return list(fitted.uncertainty.rows)
    fixed = set(readable_fixed(Modules(fitted.model, fitted.proposal), fitted.settings.fixed))
    return [
        ParameterRow(
            name + (f"[{', '.join(map(str, index))}]" if array.size > 1 else ""), float(array[index]), None, None, None
        )
        for name, array in readable_arrays(fitted.model).items()
        if f"model.{name}" not in fixed and array.size <= _LISTED
        for index in np.ndindex(np.shape(array))
    ]


def results_data(fitted: Fitted) -> dict[str, Any]:
    """Return what results.json holds, with standard errors where they are exact; those by particles take as long as
    many filters, and `mcfo fit` adds them with its other checks."""
    uncertainties = fitted.uncertainties if fitted.exact else (None,) * len(fitted.seeds)
    return {
        "stopped": fitted.stopped,
        "reason": fitted.reason,
        "steps": fitted.steps,
        "seconds": round(fitted.seconds, 3),
        "selected": fitted.selected,
        "evaluated_on": fitted.evaluated_on,
        "exact": fitted.exact,
        "readable_fixed": readable_fixed(Modules(fitted.model, fitted.proposal), fitted.settings.fixed),
        "seeds": [
            {
                "seed": one.seed,
                "skipped": one.skipped,
                "best_step": one.best_step,
                "evaluation": one.evaluation.as_data(),
                **({} if one.convergence is None else {"convergence": one.convergence.as_data()}),
                **({} if uncertainty is None else {"uncertainty": uncertainty.as_data()}),
                **({"looks": [look.as_data() for look in one.looks]} if one.looks else {}),
                "parameters": {
                    name: np.asarray(array).tolist()
                    for name, array in named_arrays(Modules(one.model, one.proposal)).items()
                    if array.size <= _LISTED
                },
                "readable": {
                    name: finite_lists(array)
                    for name, array in readable_arrays(Modules(one.model, one.proposal)).items()
                    if array.size <= _LISTED
                },
            }
            for one, uncertainty in zip(fitted.seeds, uncertainties, strict=True)
        ],
        "warnings": fitted.warnings,
    }


def _warnings(fitted: Fitted) -> list[str]:
    unfinished = [
        str(one.seed) for one in fitted.seeds if one.convergence is not None and not one.convergence.converged
    ]
    if unfinished:
        return [
            f"The search for the maximum was not over after {fitted.steps} steps (seed {', '.join(unfinished)}). Allow "
            "more of them."
        ]
    if fitted.exact:
        return []
    stuck = [one for one in fitted.seeds if one.skipped == fitted.steps]
    if stuck:
        return [
            f"{_named(stuck, fitted)} skipped every update, so nothing was learned. Look for absurd values in the "
            "data, start from other parameters, or use more particles."
        ]
    return [text for text in (_low_sample_size(fitted), _loss(fitted) or _decline(fitted)) if text]


def _named(seeds: list[SeedFit], fitted: Fitted) -> str:
    if len(seeds) == len(fitted.seeds):
        return "Every seed" if len(seeds) > 1 else "The run"
    return f"Seed {', '.join(str(one.seed) for one in seeds)}"


def _low_sample_size(fitted: Fitted) -> str | None:
    low = [
        one
        for one in fitted.seeds
        if (one.evaluation.ess or math.inf) < LOW_SAMPLE_SIZE * (one.evaluation.particles or 0)
    ]
    if not low:
        return None
    worst = min(low, key=lambda one: one.evaluation.ess or math.inf).evaluation
    return (
        f"{_named(low, fitted)} ended with a mean ESS of {worst.ess:.1f} of {worst.particles} particles. Bound and "
        "gradients then rest on a few particles: they are noisy, and the likelihood is underestimated. Use more "
        "particles, or a proposal that looks at the observation."
    )


def _loss(fitted: Fitted) -> str | None:
    """Whether what is returned is worse than the start or what a look saw, by more than chance explains."""
    found = {one.seed: clear_loss(one.looks, fitted.settings.tolerance) for one in fitted.seeds if one.looks}
    lost = {seed: loss for seed, loss in found.items() if loss is not None}
    if not lost:
        return None
    best, loss = max(lost.values(), key=lambda one: one[1])
    before = "at its start" if best.step == 0 else f"after {best.step} updates"
    return (
        f"{_named([one for one in fitted.seeds if one.seed in lost], fitted)} ended {loss:.2g} nats of log-likelihood "
        f"below what it had {before}. Lower the learning rate, use more particles, or take fewer steps."
    )


def _decline(fitted: Fitted) -> str | None:
    """Whether the bound of the batches ended lower than it once was, by more than its noise explains."""
    worse = []
    for one in fitted.seeds:
        bounds = np.array([line["log_evidence_per_step"] for line in fitted.metrics if line["seed"] == one.seed], float)
        bounds = bounds[np.isfinite(bounds)]
        parts = np.array_split(bounds, _PARTS)
        if len(parts[-1]) < 3:
            continue
        means = np.array([part.mean() for part in parts])
        errors = np.array([part.std(ddof=1) / math.sqrt(len(part)) for part in parts])
        best = int(np.argmax(means))
        if means[best] - means[-1] > 5 * math.hypot(errors[best], errors[-1]):
            worse.append(one)
    if not worse:
        return None
    return (
        f"{_named(worse, fitted)} ended with a lower bound than it had before, by more than five standard errors. "
        "Lower the learning rate, use more particles, or take fewer steps."
    )
