"""Models in files: named arrays, no pickles."""

from __future__ import annotations

from collections.abc import Sequence as Listing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from mcfo.catalogue import Start, make
from mcfo.files import InputError
from mcfo.models.base import Model
from mcfo.own_code import make_own
from mcfo.proposals.base import Bootstrap, Proposal
from mcfo.sequences import Sequence
from mcfo.training.folder import read_arrays, read_json, write_arrays
from mcfo.training.parameters import Modules, fill, named_arrays

_Tree = TypeVar("_Tree")


class SavedSeed(NamedTuple):
    """What one seed of a run learned."""

    seed: int
    model: Model
    proposal: Proposal


class SavedRun(NamedTuple):
    """A run from its folder."""

    config: dict[str, Any]
    seeds: list[SavedSeed]


def save(path: str | Path, module: Any) -> None:
    """Writes every array of a model, a proposal or any other module into an NPZ file, by name."""
    write_arrays(Path(path), {name: np.asarray(array) for name, array in named_arrays(module).items()})


def load(path: str | Path, like: _Tree) -> _Tree:
    """A module from a file of [`save`][].

    **Arguments:**

    - `like`: a module of the same structure, made as the saved one was; its arrays give way to those of the file.
    """
    return fill(like, read_arrays(Path(path)), source=str(path))


def load_run(
    folder: str | Path,
    *,
    model: str | None = None,
    proposal: str | None = None,
    like: tuple[Model, Proposal] | None = None,
    sequences: Listing[Sequence] | None = None,
) -> SavedRun:
    """What a finished run learned.

    **Arguments:**

    - `model`, `proposal`: where one's own are, `path/to/file.py:Name`. Code is never taken from the folder.
    - `like`: for a run that was made in Python, the model and the proposal that it began with.
    - `sequences`: handed to one's own function that makes the model.
    """
    folder = Path(folder)
    if not (folder / "config.json").exists():
        raise InputError(
            f"{folder} holds no run: there is no config.json in it. Give the folder that mcfo fit wrote (--out)."
        )
    config = read_json(folder / "config.json")
    if not (folder / "results.json").exists():
        raise InputError(f"The run in {folder} has not ended. Go on with it: the same command and --resume.")
    start = _start(folder, config, model, proposal, like, list(sequences or []))
    arrays = read_arrays(folder / "model.npz")
    seeds = config.get("settings", {}).get("seeds", [])
    found = []
    for place, seed in enumerate(seeds):
        try:
            of_seed = {name: array[place] for name, array in arrays.items()}
        except IndexError as error:
            raise InputError(
                f"{folder / 'model.npz'} holds fewer seeds than config.json says ({len(seeds)})."
            ) from error
        modules = fill(Modules(start.model, start.proposal), of_seed, source=str(folder / "model.npz"))
        found.append(SavedSeed(seed, modules.model, modules.proposal))
    return SavedRun(config, found)


def _start(
    folder: Path,
    config: dict[str, Any],
    model: str | None,
    proposal: str | None,
    like: tuple[Model, Proposal] | None,
    sequences: list[Sequence],
) -> Start:
    """Modules of the right structure; their numbers do not matter."""
    about = config.get("model", {})
    name, own = about.get("name"), about.get("own")
    if like is not None:
        return Start(*like, ())
    if model is not None:
        return make_own(model, sequences, proposal)
    if own is None:
        raise InputError(
            f"The model in {folder} was made in Python ({name}). Load it there: mcfo.load_run(folder, like=(model, "
            "proposal))."
        )
    of_proposal = config.get("proposal", {})
    if own or of_proposal.get("own"):
        raise InputError(
            f"{folder} holds a model or a proposal of your own ({name}). Say where the code is: --model path/to/{name}."
        )
    dimensions = config.get("data", {}).get("dimensions", 1)
    series = Sequence.from_values(np.tile(np.array([[1], [2], [1], [3]]), (1, dimensions)))
    start = make(str(name), [series], about.get("options", {}))
    return start._replace(proposal=Bootstrap()) if of_proposal.get("class") == "Bootstrap" else start
