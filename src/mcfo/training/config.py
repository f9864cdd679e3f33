"""Everything that determines a run, as data."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import jax
import numpy as np

from mcfo.reading import float_dtype
from mcfo.training.buckets import Buckets, steps_of
from mcfo.training.parameters import describe, digest, named_arrays
from mcfo.training.trainer import Trainer

_OF_DATA = ("columns", "series_column", "time_column", "image", "inputs", "unit")
_PACKAGES = ("mcfo", "jax", "jaxlib", "equinox", "optax", "numpyro", "numpy")


def make_config(trainer: Trainer, about: dict[str, Any]) -> dict[str, Any]:
    """What goes into config.json.

    **Arguments:**

    - `about`: what the caller knows beyond the arrays: "model" and "proposal" (names, options), "data" and "validation"
      (files), "columns", "series_column" and "time_column" (their names), "image" (height and width of pictures),
      "inputs" (their names), "unit" (the time of one step, where the first input is the time since the step before),
      "command".
    """
    modules, objective = trainer.modules, trainer.objective
    return {
        "kind": "fit",
        "command": about.get("command"),
        "model": {
            "name": type(modules.model).__name__,
            **about.get("model", {}),
            "class": type(modules.model).__name__,
            "parameters": _shapes(modules.model, "model"),
            "fixed": list(trainer.settings.fixed),
            "start": digest(modules.model),
            "fields": describe(modules.model, values=False),
        },
        "proposal": {
            "name": type(modules.proposal).__name__,
            **about.get("proposal", {}),
            "class": type(modules.proposal).__name__,
            "parameters": _shapes(modules.proposal, "proposal"),
            "start": digest(modules.proposal),
            "fields": describe(modules.proposal, values=False),
        },
        "objective": {
            "name": objective.name,
            "theta": describe(objective.theta),
            "phi": describe(objective.phi),
            "frugal": objective.frugal,
            "window": objective.window,
        },
        "data": _data(trainer.data, about.get("data"))
        | {name: about[name] for name in _OF_DATA if about.get(name) is not None},
        "validation": None if trainer.validation is None else _data(trainer.validation, about.get("validation")),
        "settings": trainer.settings.as_data(),
        "optimiser": trainer.optimiser_digest(),
        "devices": trainer.devices,
        "precision": str(float_dtype()),
        "versions": {name: metadata.version(name) for name in _PACKAGES},
    }


def _shapes(module: Any, side: str) -> dict[str, list[int]]:
    return {f"{side}.{name}": list(array.shape) for name, array in named_arrays(module).items()}


def _data(buckets: Buckets, file: Any) -> dict[str, Any]:
    held, inputs = [jax.tree.map(np.asarray, batch) for batch in buckets], buckets[0].inputs
    return {
        "file": file,
        "series": sum(len(batch.observations) for batch in buckets),
        "steps": sum(map(steps_of, buckets)),
        "dimensions": buckets[0].observations.shape[2],
        "sha256": digest(held[0] if len(held) == 1 else held),
    } | ({} if inputs is None else {"inputs": [f"u{place + 1}" for place in range(inputs.shape[-1])]})
