"""Listeners of a run: a progress bar in the terminal, and event files for TensorBoard."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from mcfo.errors import InputError
from mcfo.learning.looks import LOG_LIKELIHOODS


class Listener:
    """Receives the start of a run and every line of its metrics, and does nothing with them; a context manager around
    the training loop."""

    def begin(self, steps: int, step: int, particles: int) -> None:
        """Receive the start of a run that goes from `step` to `steps`."""

    def update(self, lines: list[dict[str, Any]]) -> None:
        """Receive the newest lines, one for each seed."""

    def stage(self, text: str) -> None:
        """Receive what is done now, where that is no update."""

    def notice(self, text: str) -> None:
        """Show a message to the user; called from another thread. By default it is logged."""
        logging.getLogger("mcfo").warning(text)

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *error: Any) -> None:
        return None


class Silent(Listener):
    """Shows nothing."""


class ProgressBar(Listener):
    """Shows bound, effective sample size, gradient norms, skipped updates and the time left.

    **Arguments:**

    - `each_evaluation`: whether each evaluation prints a permanent line.
    """

    def __init__(self, console: Console | None = None, title: str = "Learning", *, each_evaluation: bool = True):
        self._prints = each_evaluation
        self._console = console or Console()
        self._title = title
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )

    def __enter__(self) -> Listener:
        self._progress.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._progress.stop()

    def begin(self, steps: int, step: int, particles: int) -> None:
        self._particles = particles
        self._task = self._progress.add_task(self._title, total=steps, completed=step, state="compiling")

    def stage(self, text: str) -> None:
        self._progress.update(self._task, state=text)

    def notice(self, text: str) -> None:
        self._console.print(text, style="yellow", markup=False, highlight=False)

    def update(self, lines: list[dict[str, Any]]) -> None:
        skipped = sum(line["skipped"] for line in lines)
        parts = [
            f"bound/step {_shown(lines, 'log_evidence_per_step', '.3f')}",
            f"ESS {_shown(lines, 'ess', '.0f')}/{self._particles}",
            f"|∇θ| {_shown(lines, 'grad_norm_theta', '.2g')}",
            f"|∇φ| {_shown(lines, 'grad_norm_phi', '.2g')}",
        ]
        if skipped:
            parts.append(f"skipped {skipped}")
        self._progress.update(self._task, completed=lines[0]["step"], state=" ".join(parts))
        if self._prints and LOG_LIKELIHOODS in lines[0]:
            values = [np.mean([x for x in line[LOG_LIKELIHOODS] if x is not None] or np.nan) for line in lines]
            shown = ", ".join(f"{value:.2f}" for value in values)
            self._console.print(f"step {lines[0]['step']:>6}  log-likelihood of averaged parameters {shown}")
        if self._prints and "validation_nll_per_step" in lines[0]:
            self._console.print(
                f"step {lines[0]['step']:>6}  bound/step {_shown(lines, 'log_evidence_per_step', '.4f')}  "
                f"validation NLL/step {_shown(lines, 'validation_nll_per_step', '.4f')}  "
                f"ESS {_shown(lines, 'validation_ess', '.1f')}"
            )


class TensorBoard(Listener):
    """Writes event files, one folder for each seed, and passes everything on to the listener `then`."""

    def __init__(self, folder: Path, then: Listener):
        try:
            import tensorboardX
        except ImportError as error:
            raise InputError(
                "Event files for TensorBoard need the package tensorboardX: pip install 'mcfo[tensorboard]'."
            ) from error
        self._open = tensorboardX.SummaryWriter
        self._folder, self._then = folder, then
        self._writers: dict[int, Any] = {}

    def __enter__(self) -> Listener:
        self._then.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for writer in self._writers.values():
            writer.close()
        self._then.__exit__(*error)

    def begin(self, steps: int, step: int, particles: int) -> None:
        self._then.begin(steps, step, particles)

    def stage(self, text: str) -> None:
        self._then.stage(text)

    def notice(self, text: str) -> None:
        self._then.notice(text)

    def update(self, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            seed = line["seed"]
            if seed not in self._writers:
                self._writers[seed] = self._open(str(self._folder / f"seed-{seed}"))
            numbers = {**line, **line.get("watched", {})}
            for name, value in numbers.items():
                if isinstance(value, int | float) and name not in ("seed", "step"):
                    self._writers[seed].add_scalar(name, value, line["step"])
        self._then.update(lines)


def _shown(lines: list[dict[str, Any]], name: str, form: str) -> str:
    """Format the mean over the seeds."""
    values = [line[name] for line in lines if line.get(name) is not None]
    return format(float(np.mean(values)), form) if values else "–"
