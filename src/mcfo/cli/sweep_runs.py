"""The runs of a sweep, one process for each: on this machine, as tasks of Ray, or as a job array of Slurm."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import typer

from mcfo import interrupts
from mcfo.cli.compile_cache import use_compile_cache
from mcfo.cli.fit import fit
from mcfo.errors import InputError

_TRIES = 3
"""How often Ray starts a run again that failed or whose worker was lost."""
_SECONDS = 0.1


class Task(NamedTuple):
    """One run to do: its name, the words after `mcfo`, and the file that its output is appended to."""

    name: str
    arguments: list[str]
    log: Path


Ended = Callable[[str, int], None]
"""Called with the name and the exit code of a run that ended."""


def run_here(tasks: Sequence[Task], cores: int, ended: Ended) -> None:
    """Run all tasks in processes of this machine, each pinned to its share of the cores."""
    every = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    shares = [every[first : first + cores] for first in range(0, len(every) - cores + 1, cores)] or [every]
    waiting, running = list(tasks), {}
    try:
        while waiting or running:
            while waiting and shares:
                task, share = waiting.pop(0), shares.pop()
                running[_start(task, share)] = task, share
            time.sleep(_SECONDS)
            interrupts.check()
            for process in [one for one in running if one.poll() is not None]:
                task, share = running.pop(process)
                shares.append(share)
                ended(task.name, process.returncode)
    finally:
        # Told once, the runs save a checkpoint and end; what does not end is not waited for.
        for process in running:
            process.send_signal(signal.SIGINT)
        for process in running:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def _start(task: Task, share: Sequence[int]) -> subprocess.Popen[bytes]:
    with task.log.open("ab") as log:
        # In a group of its own: Ctrl-C in the terminal reaches it by this process alone, and so not twice.
        words = [sys.executable, "-m", "mcfo", *task.arguments]
        process = subprocess.Popen(words, stdout=log, stderr=log, process_group=0)
    if hasattr(os, "sched_setaffinity"):
        # Its threads, which start later, inherit it.
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(process.pid, share)
    return process


def run_on_ray(tasks: Sequence[Task], cores: int, address: str, ended: Ended) -> None:
    """Run all tasks on a Ray cluster, which shares this machine's folders; lost and failed ones are tried again."""
    try:
        import ray
        from ray.exceptions import RayError
    except ImportError:
        raise InputError("Sweeps on Ray need the package ray: pip install 'mcfo[ray]'.") from None
    try:
        # `local` starts a cluster here, also where a variable of the environment names another one.
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(f"There is no Ray cluster at {address}: {error}. Give its address, auto, or local.") from error
    try:
        # A process of its own for every run: JAX cannot be started twice. A run that is tried again resumes.
        remote = ray.remote(num_cpus=cores, max_calls=1, max_retries=_TRIES, retry_exceptions=True)(_run_in_worker)
        pending = {remote.remote(task.arguments, str(task.log)): task for task in tasks}
        while pending:
            done, _ = ray.wait(list(pending), num_returns=1, timeout=1.0)
            interrupts.check()
            if not done:
                continue
            task = pending.pop(done[0])
            try:
                ended(task.name, ray.get(done[0]))
            except RayError:
                ended(task.name, 1)
    finally:
        ray.shutdown()


def _run_in_worker(arguments: list[str], log: str) -> int:
    """Run `mcfo` in this worker; input that cannot be used is not tried again."""
    with _output_into(Path(log)):
        sys.argv = ["mcfo", *arguments]
        try:
            # Not by the program's `main`, which ends the process.
            use_compile_cache()
            alone = typer.Typer(pretty_exceptions_enable=False)
            alone.command()(fit)
            alone(arguments[1:])
        except SystemExit as stopped:
            code = int(stopped.code or 0)
            if code not in (0, 2):
                raise RuntimeError(f"The run ended with code {code}; its output is in {log}.") from None
            return code
    return 0


@contextlib.contextmanager
def _output_into(log: Path) -> Iterator[None]:
    with log.open("a", encoding="utf-8") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        yield


def slurm_script(tasks: Sequence[Task], cores: int, name: str) -> str:
    """A job array: `sbatch FILE` runs the tasks, one in each element."""
    commands = "".join(
        f"  {index}) {shlex.join([sys.executable, '-m', 'mcfo', *task.arguments])} "
        f">> {shlex.quote(str(task.log))} 2>&1 ;;\n"
        for index, task in enumerate(tasks)
    )
    return (
        f"#!/bin/bash\n#SBATCH --job-name={name}\n#SBATCH --array=0-{len(tasks) - 1}\n"
        f"#SBATCH --cpus-per-task={cores}\n#SBATCH --requeue\n\n# A run that is started again resumes.\n"
        f'case "$SLURM_ARRAY_TASK_ID" in\n{commands}esac\n'
    )


def as_json(task: Task) -> dict[str, Any]:
    """The task as sweep.json stores it."""
    return {"name": task.name, "arguments": task.arguments}
