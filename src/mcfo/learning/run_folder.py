"""The folder of a run: configuration, metrics, checkpoints and results."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import IO, Any, Protocol, runtime_checkable

import numpy as np

from mcfo.data.batching import Buckets, as_buckets, count_steps, unstacked
from mcfo.data.npz import write_npz
from mcfo.errors import InputError, OtherRunError, RunError
from mcfo.files import read_json, refuse_links, write_atomically
from mcfo.learning.checkpoints import Checkpoints
from mcfo.learning.parameters import Modules, describe, digest, named_arrays
from mcfo.learning.settings import Settings
from mcfo.learning.step import State

_IGNORED = ("command", "data.file", "validation.file", "settings.devices", "model.path", "proposal.path")
"""Entries of config.json about how the run was called, not what it computes: data and code are identified by their
hash, and the devices in use are listed beside the requested ones."""


class RunFolder:
    """A folder with `config.json`, `metrics.jsonl` and `checkpoints/`; at the end also `results.json` and `model.npz`.

    **Arguments:**

    - `config`: everything that determines the run.
    - `resume`: resume an interrupted run, which must have the same configuration.
    """

    def __init__(self, path: Path, config: Mapping[str, Any], *, resume: bool):
        self.path = path
        self.config = json.loads(json.dumps(config, allow_nan=False))
        if path.exists() and not path.is_dir():
            raise InputError(f"{path} is not a folder. Choose another one.")
        refuse_links(path)
        if resume:
            self._check_same()
        elif path.exists() and any(path.iterdir()):
            raise InputError(
                f"{path} exists already. Choose another folder, or resume the run in it: --resume (in Python, "
                "resume=True)."
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = lock(path / ".lock")
            self.write_json("config.json", self.config)
            self._metrics = (path / "metrics.jsonl").open("ab", buffering=0)
        except OSError as error:
            raise InputError(f"Cannot write into {path}: {error.strerror}. Choose another folder.") from error
        self._checkpoints = Checkpoints(path / "checkpoints")

    @property
    def finished(self) -> bool:
        """Whether the run has finished."""
        return (self.path / "results.json").exists()

    def restore(self, like: State) -> tuple[State, float, list[dict[str, Any]]]:
        """Return the state to resume from, the seconds spent on it and the metrics up to it."""
        restored = self._checkpoints.restore(like)
        state, seconds = (like, 0.0) if restored is None else restored
        lines = [line for line in read_metrics(self.path) if line["step"] <= int(state.step)]
        # Lines after the checkpoint will be logged again.
        content = "".join(json.dumps(line) + "\n" for line in lines)
        self._metrics.close()
        try:
            write_atomically(self.path / "metrics.jsonl", content.encode())
            self._metrics = (self.path / "metrics.jsonl").open("ab", buffering=0)
        except OSError as error:
            raise self._cannot_write("metrics.jsonl", error) from error
        return state, seconds, lines

    def restart(self) -> None:
        """Forget the metrics of an earlier attempt."""
        try:
            self._metrics.truncate(0)
        except OSError as error:
            raise self._cannot_write("metrics.jsonl", error) from error

    def save_result(self, step: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Save what was found as the only checkpoint."""
        try:
            folder = self.path / "checkpoints"
            folder.mkdir(exist_ok=True)
            write_npz(folder / f"{step}.npz", arrays)
        except OSError as error:
            raise self._cannot_write("the checkpoint", error) from error

    def log(self, lines: list[dict[str, Any]]) -> None:
        """Append lines to the metrics."""
        try:
            self._check_there()
            content = "".join(json.dumps(line) + "\n" for line in lines).encode()
            if self._metrics.write(content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise self._cannot_write("metrics.jsonl", error) from error

    def checkpoint(self, state: State, *, seconds: float, nll_per_step: float) -> None:
        """Save the state, once the metrics up to it are on the disk."""
        try:
            os.fsync(self._metrics.fileno())
        except OSError as error:
            raise self._cannot_write("metrics.jsonl", error) from error
        self._checkpoints.save(state, seconds=seconds, nll_per_step=nll_per_step)

    def finish(self, results: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Write the results; results.json comes last, because it marks the run as finished."""
        try:
            write_npz(self.path / "model.npz", arrays)
            self.write_json("results.json", results)
        except OSError as error:
            raise self._cannot_write("the results", error) from error

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write one of the folder's JSON files atomically."""
        text = json.dumps(content, indent=2, allow_nan=False)
        write_atomically(self.path / name, (text + "\n").encode())

    def close(self) -> None:
        """Close the files."""
        self._metrics.close()
        try:
            self._checkpoints.close()
        finally:
            self._lock.close()

    def _check_there(self) -> None:
        """Notice that the folder was removed or replaced: what is open would be written for nobody."""
        if not os.path.samestat(os.stat(self.path / "metrics.jsonl"), os.fstat(self._metrics.fileno())):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    def _check_same(self) -> None:
        if not (self.path / "config.json").exists():
            if self.path.exists() and any(not _is_remnant(one) for one in self.path.iterdir()):
                raise InputError(f"{self.path} holds no run to resume: there is no config.json in it.")
            return  # it was interrupted before its first file was complete
        previous = read_json(self.path / "config.json")
        different = [one for one in differences(self.config, previous) if one[0] not in _IGNORED]
        if different:
            shown = "; ".join(f"{name} was {old!r} and is {new!r}" for name, new, old in different[:4])
            if [name for name, _, _ in different] == ["devices"]:
                old = different[0][2]
                shown += f" (add --devices {old}; in Python, call mcfo.use_every_core({old}) first)"
            raise OtherRunError(
                f"{self.path} holds a run with another configuration: {shown}. Resume with the configuration in "
                f"{self.path / 'config.json'}, or choose another folder."
            )
        # The command is that of the first call.
        self.config["command"] = previous.get("command")

    def _cannot_write(self, what: str, error: OSError) -> RunError:
        if not (self.path / "config.json").exists():
            return RunError(
                f"Cannot write {what} into {self.path}: the folder was removed or renamed while the run was writing "
                "into it. Put it back and resume: --resume (in Python, resume=True); or start again."
            )
        return RunError(
            f"Cannot write {what} into {self.path}: {error.strerror}. What was saved before is complete. Free some "
            "space and resume: --resume (in Python, resume=True)."
        )


def _is_remnant(path: Path) -> bool:
    """Whether a file is left over from a process that was killed."""
    return path.name == ".lock" or (path.name.startswith(".") and path.name.endswith(".part"))


def lock(path: Path) -> IO[bytes]:
    """Take a lock that is released when the process ends: two runs in one folder would overwrite each other."""
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise InputError(
            f"Another process is at work in {path.parent}. Wait for it, or choose another folder."
        ) from error
    return file


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Read the lines of the metrics, without a last one that was cut off when the process was killed."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    lines = []
    texts = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for number, text in enumerate(texts, 1):
        if not text:
            continue
        try:
            line = json.loads(text)
        except (ValueError, RecursionError) as error:
            if number < len(texts):
                raise InputError(f"Line {number} of {path} is not JSON: {error}. Delete it.") from error
            continue
        if not isinstance(line, dict) or not isinstance(line.get("step"), int):
            raise InputError(f"Line {number} of {path} has no whole number 'step'. Delete it.")
        lines.append(line)
    return lines


def differences(new: Any, old: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """Return the differences of two configurations: dotted path, new and old value."""
    if isinstance(new, dict) and isinstance(old, dict):
        names = sorted(new.keys() | old.keys())
        return [
            one
            for name in names
            for one in differences(new.get(name), old.get(name), f"{path}.{name}" if path else name)
        ]
    return [] if new == old else [(path, new, old)]


_OF_DATA = (
    *("columns", "series_column", "time_column", "image", "inputs", "unit", "calendar", "irregular", "holdout_steps"),
)
_PACKAGES = ("mcfo", "jax", "jaxlib", "equinox", "optax", "numpyro", "numpy")


@runtime_checkable
class Run(Protocol):
    """What a configuration is built from: a run by particles or by an exact likelihood."""

    modules: Modules
    data: Buckets
    validation: Buckets | None
    settings: Settings

    @property
    def devices(self) -> int: ...

    @property
    def precision(self) -> str: ...

    def objective_data(self) -> dict[str, Any]: ...

    def optimizer_digest(self) -> str: ...


def build_config(trainer: Run, about: dict[str, Any]) -> dict[str, Any]:
    """Return what config.json holds.

    **Arguments:**

    - `about`: facts beyond the arrays: "model" and "proposal" (names, options), "rules" of the user's own, "data" and
      "validation" (files), "columns", "series_column" and "time_column" (their names), "image" (height and width of
      images), "inputs" (their names), "unit" (the time of one step, where the first input is the time since the step
      before), "calendar" (what inputs are made from dates), "irregular" ("rows" where each row is one step whatever
      its date), "command".
    """
    modules = trainer.modules
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
        "objective": trainer.objective_data() | ({"rules": about["rules"]} if about.get("rules") else {}),
        "data": _data(trainer.data, about.get("data"))
        | {name: about[name] for name in _OF_DATA if about.get(name) is not None},
        "validation": None if trainer.validation is None else _data(trainer.validation, about.get("validation")),
        "settings": trainer.settings.as_data(),
        "optimizer": trainer.optimizer_digest(),
        "devices": trainer.devices,
        "precision": trainer.precision,
        "versions": {name: metadata.version(name) for name in _PACKAGES},
    }


def _shapes(module: Any, side: str) -> dict[str, list[int]]:
    return {f"{side}.{name}": list(array.shape) for name, array in named_arrays(module).items()}


def data_digest(data: Any) -> str:
    """Hash the values and inputs of all series, whatever their padding and their batches are."""
    each = [one for batch in as_buckets(data) for one in unstacked(batch)]
    result = hashlib.sha256()
    for series in sorted(each, key=lambda one: int(one.series_id)):
        values = series.values()
        inputs = None if series.inputs is None else np.asarray(series.inputs, np.float64)[: len(values)]
        for array in (values, *(() if inputs is None else (inputs,))):
            result.update(f"{array.shape};".encode())
            result.update(np.ascontiguousarray(array).tobytes())
    return result.hexdigest()


def _data(buckets: Buckets, file: Any) -> dict[str, Any]:
    inputs = buckets[0].inputs
    return {
        "file": file,
        "series": sum(len(batch.observations) for batch in buckets),
        "steps": sum(map(count_steps, buckets)),
        "dimensions": buckets[0].observations.shape[2],
        "sha256": data_digest(buckets),
    } | ({} if inputs is None else {"inputs": [f"u{index + 1}" for index in range(inputs.shape[-1])]})
