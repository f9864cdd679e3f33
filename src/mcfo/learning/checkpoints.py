"""Checkpoints by Orbax: each is complete or absent; the newest few and the best are preserved."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import shutil
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mcfo.data.run_record import number
from mcfo.errors import InputError, RunError
from mcfo.files import nested
from mcfo.learning.parameters import dotted, named_arrays
from mcfo.learning.step import State

KEEP = 3
"""The number of newest checkpoints that are preserved, besides the best."""
_SCORE = "nll_per_step"
_ROOM = 2**19
"""Bytes that a checkpoint may take beside its arrays: it is written as many small files."""
_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def _orbax() -> Iterator[None]:
    """Allow one call of Orbax at a time, and silence its log.

    Two threads that save at once wait for each other until they time out. Errors are raised, and logged besides.
    """
    logger = logging.getLogger("absl")
    with _ONE_AT_A_TIME:
        before = logger.level
        logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            logger.setLevel(before)


class Checkpoints:
    """The checkpoints in a folder. Arrays are stored by name: nothing is pickled, so that loading executes no code."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._failed = False

    @cached_property
    def _manager(self) -> Any:
        # Orbax takes a third of a second to import, which the first step of a run should not wait for.
        from orbax.checkpoint import v1 as orbax

        training: Any = orbax.training  # its annotations name types that its own policies do not match
        policies = training.preservation_policies
        best = policies.BestN(
            get_metric_fn=lambda metrics: metrics[_SCORE], reverse=True, n=1, keep_checkpoints_without_metrics=False
        )
        self._drop_damaged_scores()
        with _orbax():
            return training.Checkpointer(
                self._folder.absolute(),
                preservation_policy=policies.AnyPreservationPolicy([policies.LatestN(KEEP), best]),
                cleanup_tmp_directories=True,
            )

    def _drop_damaged_scores(self) -> None:
        """Remove scores that are not readable, without which Orbax would not open the folder at all."""
        for file in self._folder.glob("*/metrics/metrics"):
            try:
                score = number(nested(json.loads(file.read_bytes()), _SCORE))
            except (ValueError, RecursionError):
                score = None
            if score is None:
                warnings.warn(
                    f"The score of the checkpoint of step {file.parts[-3]} is damaged and left out.", stacklevel=2
                )
                shutil.rmtree(file.parent)

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, in ascending order."""
        return sorted(checkpoint.step for checkpoint in self._manager.checkpoints)

    def save(self, state: State, *, seconds: float, nll_per_step: float) -> None:
        """Save the state, unless it is saved already, and the seconds that the run has taken so far.

        **Arguments:**

        - `nll_per_step`: the criterion of the best; infinite if this state was not evaluated.
        """
        step = int(state.step)
        if step in self.steps():
            return
        content = {name: np.asarray(array) for name, array in named_arrays(state).items()}
        content["seconds"] = np.asarray(seconds, np.float64)
        metrics = {_SCORE: nll_per_step} if math.isfinite(nll_per_step) else None
        try:
            # Orbax is not asked where it would fail: of its writes that are under way then, each prints a traceback.
            if shutil.disk_usage(self._folder).free < _ROOM + 2 * sum(array.nbytes for array in content.values()):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            with _orbax():
                self._manager.save(step, content, metrics=metrics, force=True)
        except Exception as error:
            # Orbax and its storage raise errors of many types; each means that this checkpoint does not exist.
            self._failed = True
            raise RunError(
                f"Cannot write the checkpoint of step {step} into {self._folder}: {_first_line(error)} "
                "Earlier ones are complete. Free some space, or repair the folder, and resume: --resume (in Python, "
                "resume=True)."
            ) from error

    def restore(self, like: State) -> tuple[State, float] | None:
        """Return the newest readable state and its seconds; None if there is no checkpoint at all.

        **Arguments:**

        - `like`: a state of the same shape, such as the initial one.
        """
        unreadable: list[int] = []
        for step in reversed(self.steps()):
            try:
                with _orbax():
                    content: Any = self._manager.load(step)
            except Exception:
                # Orbax and its storage raise errors of many types over damaged files; the next older one may be sound.
                unreadable.append(step)
                continue
            for bad in unreadable:
                warnings.warn(
                    f"The checkpoint of step {bad} is damaged and is replaced: the run resumes from step {step}.",
                    stacklevel=2,
                )
                with _orbax():
                    self._manager.delete(bad)
            return self._fill(like, content)
        if unreadable:
            raise InputError(
                f"No checkpoint in {self._folder} can be read: those of the steps "
                f"{', '.join(map(str, sorted(unreadable)))} are damaged. Start again in another folder."
            )
        return None

    def _fill(self, like: State, content: dict[str, Any]) -> tuple[State, float]:
        seconds = float(content.pop("seconds", 0.0))
        wanted, stored = ({name: np.shape(one) for name, one in tree.items()} for tree in (named_arrays(like), content))
        different = sorted({name for name, _ in wanted.items() ^ stored.items()})
        if different:
            shown = ", ".join(different[:4]) + (" and others" if len(different) > 4 else "")
            raise InputError(
                f"The checkpoint in {self._folder} is one of another model, optimizer or number of seeds: {shown} "
                "differ. Resume with the model, the proposal and the settings of the run, or choose another folder."
            )

        def pick(path: Any, leaf: Any) -> Any:
            return jnp.asarray(content[dotted(path)], leaf.dtype) if eqx.is_array(leaf) else leaf

        return jax.tree_util.tree_map_with_path(pick, like), seconds

    def close(self) -> None:
        """Stop the threads of Orbax, if it started any."""
        if "_manager" not in vars(self):
            return
        try:
            with _orbax():
                self._manager.close()
        except Exception:
            # Orbax raises again what has been reported.
            if not self._failed:
                raise


def _first_line(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    line = text.strip().partition("\n")[0][:200] or type(error).__name__
    return line if line.endswith(".") else line + "."
