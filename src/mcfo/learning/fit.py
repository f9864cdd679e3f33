"""`fit`: the training loop, from top to bottom."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from mcfo import interrupts
from mcfo.data.tables import table_of
from mcfo.errors import InputError
from mcfo.learning.exact_fit import fit_exactly
from mcfo.learning.fitted_model import model_title
from mcfo.learning.named_models import by_name, choose_objective, remembered
from mcfo.learning.parameters import Modules
from mcfo.learning.progress import Listener, Silent
from mcfo.learning.results import Fitted, results_data
from mcfo.learning.run_folder import RunFolder, build_config
from mcfo.learning.settings import Settings
from mcfo.learning.trainer import Trainer
from mcfo.learning.watchdog import Watchdog
from mcfo.models.base import Model
from mcfo.objectives.objective import Objective
from mcfo.proposals.base import Proposal

_Model = TypeVar("_Model", bound=Model)
_Proposal = TypeVar("_Proposal", bound=Proposal)

CHECKPOINT_SECONDS = 10.0
"""The longest time between two checkpoints."""


def fit(
    model: _Model | str,
    proposal: _Proposal | Any = None,
    data: Any = None,
    *,
    objective: Objective | str | None = None,
    validation: Any = None,
    out: str | Path | None = None,
    resume: bool = False,
    watch: Callable[[Any, Any], Mapping[str, Any]] | None = None,
    listener: Listener | None = None,
    about: Mapping[str, Any] | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    **settings: Any,
) -> Fitted[_Model, _Proposal]:
    """Learn a model from series, and its proposal where particles are needed.

        fitted = mcfo.fit("local-level", frame["flow"])
        fitted = mcfo.fit(model, proposal, series, objective=mcfo.objectives.mcfo(100), steps=2000, learning_rate=0.01)

    A model of the catalogue is given by its name, followed by the data; further keywords are its options. Where the
    likelihood is known exactly (linear Gaussian models), it is maximized by a second-order method from several starts,
    in float64, until nothing improves; otherwise, and with an `objective`, it is learned by particles.

    By particles, it ends when twice as many updates gain nothing (`tolerance`). An update whose bound, gradient or new
    parameters are not finite is skipped and counted. The random numbers of step n come from `fold_in(key(seed), n)`,
    so that resuming an interrupted run is bit-identical.

    **Arguments:**

    - `data`: series of any lengths, as a list or as a batch of [`stack`][], or a file, a table or a data frame as
      [`read_series`][] takes them; after a name also an array. A list is batched by similar lengths where that saves
      much padding.
    - `objective`: an objective of `mcfo.objectives`, or its name; "exact", or None for exact where that is possible,
      and otherwise MCFO with 100 particles.
    - `validation`: held-out series; they select the best parameters and decide on early stopping.
    - `out`: a folder for configuration, metrics, checkpoints and results; without it nothing is written.
    - `resume`: resume the run in that folder, or start it if there is none.
    - `watch`: a function of model and proposal; the numbers that it returns by name are saved in the metrics.
    - `listener`: receives every line of the metrics; [`ProgressBar`][] shows them.
    - `about`: names for config.json: "model", "data", "validation", "command".
    - `checkpoint_seconds`: the time between checkpoints; the best evaluation and the end have one anyway.
    - `settings`: the fields of [`Settings`][]. Of these, an exact fit uses `steps` (as a limit), `seeds` (of the
      starts) and `fixed`.
    """
    if isinstance(model, str):
        model, proposal, known, about, settings = by_name(model, proposal, data, dict(about or {}), settings)
        data = known.series_list
    elif data is None:
        raise InputError("There are no data to learn from. Call fit(model, proposal, data), or fit(name, data).")
    else:
        # Read once, so that its notes are said once.
        table = table_of(data)
        data = data if table is None else table
        known = remembered(data)
    chosen = Settings.from_options(settings)
    listener = Silent() if listener is None else listener
    assert not isinstance(model, str)
    modules = Modules(model, proposal)
    objective = choose_objective(objective, model)
    named = (about or {}).get("model", {})
    facts = {"data": known, "name": model_title(named["name"], named.get("options", {})) if "name" in named else ""}
    if objective is None:
        if watch is not None:
            raise InputError("An exact fit has no updates to watch. Leave out watch, or name an objective.")
        exactly = fit_exactly(
            modules, data, validation, chosen, out=out, resume=resume, listener=listener, about=about or {}
        )
        return replace(exactly, **facts)
    trainer = Trainer(objective, modules, data, validation, chosen, watch)
    state, seconds, lines = trainer.start(), 0.0, []
    folder = None
    if out is not None:
        config = build_config(trainer, dict(about or {}))
        folder = RunFolder(Path(out), config, resume=resume)
    try:
        if folder is not None and resume:
            state, seconds, lines = folder.restore(state)
            state = trainer.replicate(state)
        started = saved = time.perf_counter()
        before, best = seconds, trainer.best_score(lines)
        with listener, Watchdog(listener, _how_to_resume(out)) as watchdog:
            listener.begin(chosen.steps, int(state.step), trainer.particles)
            while not trainer.is_over(state, lines):
                step = int(state.step)
                state, new = watchdog.watch(step, trainer.advance, state)
                if trainer.is_due(state):
                    state, new = watchdog.watch(step, trainer.validate, state, new)
                if trainer.is_look(state):
                    state, new = watchdog.watch(step, trainer.look, state, new)
                seconds = before + time.perf_counter() - started
                new = [{**line, "seconds": round(seconds, 3)} for line in new]
                lines += new
                listener.update(new)
                score = trainer.score(new)
                if folder is not None:
                    folder.log(new)
                    if score < best or time.perf_counter() - saved > checkpoint_seconds:
                        folder.checkpoint(state, seconds=seconds, nll_per_step=score)
                        saved = time.perf_counter()
                best = min(best, score)
                if interrupts.requested() is not None and folder is not None:
                    folder.checkpoint(state, seconds=seconds, nll_per_step=score)
                interrupts.check()
            listener.stage("evaluating")
            fitted = watchdog.watch(int(state.step), trainer.finish, state, lines, seconds)
            if folder is not None:
                folder.checkpoint(state, seconds=seconds, nll_per_step=math.inf)
                folder.finish(results_data(fitted), fitted.arrays())
    finally:
        if folder is not None:
            folder.close()
    return replace(fitted, **facts)


def _how_to_resume(out: str | Path | None) -> str:
    if out is None:
        return "Nothing of it is saved; give a folder, out=..., to be able to resume the next one."
    return f"The run is in {out}: the same call with --resume (in Python, resume=True) continues from its checkpoint."
