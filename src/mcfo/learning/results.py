"""What learning leaves behind."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from mcfo.inference.evaluation import Evaluation
from mcfo.inference.filtering import filter
from mcfo.inference.forecasting import forecast
from mcfo.inference.smoothing import smooth
from mcfo.learning.parameters import Modules, named_arrays
from mcfo.learning.readable import finite_lists, readable_arrays, readable_fixed
from mcfo.learning.settings import Settings
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal

if TYPE_CHECKING:
    import xarray

_Model = TypeVar("_Model", bound=Model)
_Proposal = TypeVar("_Proposal", bound=Proposal)

_LISTED = 64
"""Arrays of up to so many entries are printed in results.json; all of them are in model.npz."""


@dataclass(frozen=True)
class SeedFit(Generic[_Model, _Proposal]):
    """What one seed learned.

    - `skipped`: updates that were not finite, and not made.
    - `best_step`: after which update the validation NLL was lowest.
    """

    seed: int
    model: _Model
    proposal: _Proposal
    evaluation: Evaluation
    skipped: int
    best_step: int | None


@dataclass(frozen=True)
class Fitted(Generic[_Model, _Proposal]):
    """What [`fit`][] learned. `model` and `proposal` are those of the seed with the lowest NLL; `seeds` has all."""

    seeds: tuple[SeedFit[_Model, _Proposal], ...]
    metrics: tuple[dict[str, Any], ...]
    settings: Settings
    steps: int
    seconds: float
    selected: str
    evaluated_on: str
    stopped: str

    @property
    def best(self) -> SeedFit[_Model, _Proposal]:
        """The seed with the lowest NLL."""

        def nll(one: SeedFit) -> float:
            return math.inf if math.isnan(one.evaluation.nll_per_step) else one.evaluation.nll_per_step

        return min(self.seeds, key=nll)

    @property
    def model(self) -> _Model:
        return self.best.model

    @property
    def proposal(self) -> _Proposal:
        return self.best.proposal

    @property
    def evaluation(self) -> Evaluation:
        return self.best.evaluation

    @property
    def skipped(self) -> int:
        """Updates that were not made, over all seeds."""
        return sum(one.skipped for one in self.seeds)

    def filter(self, data: Any, **options: Any) -> xarray.Dataset:
        """What is known of each state when its step comes: p(z_t | x_1:t), and p(x_t | x_1:t-1) before it.

        `data` is a file, what `read_series` read, series or an array; the options are `particles`, `levels`, `draws`
        and `seed`.
        """
        return filter(self.model, self.proposal, data, **options)

    def smooth(self, data: Any, **options: Any) -> xarray.Dataset:
        """What is known of each state in the end, p(z_t | x_1:T), and of what was missing.

        The options are those of `filter`, and `paths`.
        """
        return smooth(self.model, self.proposal, data, **options)

    def forecast(self, data: Any, steps: int, **options: Any) -> xarray.Dataset:
        """What comes in the steps after the last one. The options are those of `filter`, and `inputs`."""
        return forecast(self.model, self.proposal, data, steps, **options)

    def arrays(self) -> dict[str, np.ndarray]:
        """Every array of every seed's model and proposal, by name, the seeds in front."""
        each = [named_arrays(Modules(one.model, one.proposal)) for one in self.seeds]
        return {name: np.stack([np.asarray(arrays[name]) for arrays in each]) for name in each[0]}


def results_data(fitted: Fitted) -> dict[str, Any]:
    """What goes into results.json."""
    return {
        "stopped": fitted.stopped,
        "steps": fitted.steps,
        "seconds": round(fitted.seconds, 3),
        "selected": fitted.selected,
        "evaluated_on": fitted.evaluated_on,
        "readable_fixed": readable_fixed(Modules(fitted.model, fitted.proposal), fitted.settings.fixed),
        "seeds": [
            {
                "seed": one.seed,
                "skipped": one.skipped,
                "best_step": one.best_step,
                "evaluation": one.evaluation.as_data(),
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
            for one in fitted.seeds
        ],
        "warnings": _warnings(fitted),
    }


def _warnings(fitted: Fitted) -> list[str]:
    stuck = [str(one.seed) for one in fitted.seeds if one.skipped == fitted.steps]
    if not stuck:
        return []
    which = "Every seed" if len(stuck) == len(fitted.seeds) else f"Seed {', '.join(stuck)}"
    return [
        f"{which} skipped every update, so nothing was learned. Look for absurd values in the data, start from other "
        "parameters, or use more particles."
    ]
