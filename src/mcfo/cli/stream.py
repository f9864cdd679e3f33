"""`mcfo stream`: observations in, states out, one JSON line for each."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from mcfo.cli.common import OwnModel, OwnProposal, RunFolder, RunSeed, Seed, exists, fail, messages
from mcfo.cli.states import Levels, Particles, read_levels
from mcfo.errors import InputError


def stream(
    run: RunFolder,
    particles: Particles = 1000,
    quantiles: Levels = "0.05,0.25,0.5,0.75,0.95",
    learn: Annotated[
        bool, typer.Option("--learn", help="Update the model and the proposal with every observation.")
    ] = False,
    learning_rate: Annotated[float, typer.Option(help="Of --learn.", min=1e-12, max=1e3)] = 1e-3,
    optimizer: Annotated[str, typer.Option(help="Of --learn: the name of an optimizer in optax.")] = "adam",
    theta: Annotated[str, typer.Option(help="Of --learn: the gradient rule for the model.")] = "filter-score",
    phi: Annotated[str, typer.Option(help="Of --learn: the gradient rule for the proposal.")] = "dreg",
    state: Annotated[
        Path | None,
        typer.Option(
            help="Keep the state in this .npz file: at the end, on SIGTERM and SIGINT, and with --every. If it exists, "
            "go on from there."
        ),
    ] = None,
    every: Annotated[int | None, typer.Option(help="Keep the state after every so many steps too.", min=1)] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Answer malformed lines with an error and go on, instead of ending.")
    ] = False,
    seed: Seed = 0,
    run_seed: RunSeed = None,
    model: OwnModel = None,
    proposal: OwnProposal = None,
) -> None:
    """Filter a stream: each line of standard input is an observation in JSON, a number, an array or an object with the
    names of columns and inputs, null for what is missing; each is answered by one line, with the state's mean and
    quantiles, the effective sample size and the log-density of the observation given those before."""
    levels = read_levels(quantiles)
    if every is not None and state is None:
        fail("--every says when to keep the state. Say where, with --state FILE.")
    if state is not None:
        if state.suffix.lower() != ".npz":
            fail(f"--state {state} must end in .npz. Choose another name.")
        if not state.parent.is_dir():
            fail(f"There is no folder {state.parent} for {state.name}. Make it, or choose another with --state.")
        if exists(state) and not state.is_file():
            fail(f"{state} is no file. Choose another one with --state.")
    exists(run)
    rules = {"learning_rate": learning_rate, "optimizer": optimizer, "theta": theta, "phi": phi}
    with messages():
        made = _make(run, (model, proposal), run_seed, seed, particles, levels, rules if learn else None)
        _Stream(*made, state, every, skip_bad).run()


def _make(
    run: Path,
    own: tuple[str | None, str | None],
    run_seed: int | None,
    seed: int,
    particles: int,
    levels: tuple[float, ...],
    rules: dict[str, Any] | None,
) -> tuple[Any, Any, dict[str, Any]]:
    """A stream before its first observation, the run that it is of, and what tells it apart."""
    import jax

    from mcfo import online
    from mcfo.files import nested
    from mcfo.learning.parameters import Modules, digest
    from mcfo.learning.saved_runs import load_run

    saved = load_run(run, model=own[0], proposal=own[1])
    learned = saved.choose(run_seed)
    learning = None
    if rules is not None:
        fixed = nested(saved.config, "settings", "fixed")
        fixed = tuple(str(one) for one in fixed) if isinstance(fixed, list) else ()
        learning = online.Learning(fixed=fixed, **rules)
    try:
        state = online.init(
            learned.model,
            learned.proposal,
            key=jax.random.key(seed),
            particles=particles,
            levels=levels,
            learning=learning,
            inputs=saved.inputs.size or None,
        )
    except InputError:
        raise
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"The model in {run} cannot be streamed: {error}") from error
    return state, saved, {"model": digest(Modules(learned.model, learned.proposal)), "seed": seed}


class _Stopped(Exception):
    """A signal came while nothing was being done."""


class _Stream:
    """Answers lines until they end or a signal comes.

    The state that is kept is always that after the last answer, so that whoever sends the lines knows where to go on.
    """

    def __init__(
        self,
        state: Any,
        saved: Any,
        about: dict[str, Any],
        path: Path | None,
        every: int | None,
        skip_bad: bool,
    ):
        self.state, self.saved, self.about = state, saved, about
        self.columns, self.inputs = saved.columns, saved.inputs
        self.path, self.every, self.skip_bad = path, every, skip_bad
        self.waiting = self.stopped = False

    def run(self) -> None:
        from mcfo import online

        if self.path is not None and self.path.exists():
            self.state = online.restore(self.path, self.state, about=self.about)
            print(f"mcfo: goes on after step {int(self.state.time)}, from {self.path}", file=sys.stderr, flush=True)
        # Compiled before the first line comes, so that all are answered at the same rate.
        online.step(self.state, None, inputs=[1.0] * self.inputs.size or None)
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            self._answer_all()
        except _Stopped:
            pass
        except BrokenPipeError:
            # Nobody reads any more. What is left to flush at exit would raise the same again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._keep()

    def _stop(self, number: int, frame: Any) -> None:
        self.stopped = True
        if self.waiting:
            raise _Stopped

    def _answer_all(self) -> None:
        number = 0
        while not self.stopped:
            self.waiting = True
            line = sys.stdin.readline()
            self.waiting = False
            if not line:
                return
            number += 1
            if line.strip():
                self._answer(line, number)

    def _answer(self, line: str, number: int) -> None:
        import jax

        from mcfo import online
        from mcfo.data.jsonl import read_line, write_answer

        try:
            inputs = self.inputs
            read = read_line(line, self.columns, inputs.names, timed=inputs.unit is not None)
            self.saved.check(read.values)
            later, output = online.step(self.state, read.values, inputs=read.inputs)
        except InputError as error:
            if not self.skip_bad:
                raise InputError(f"Line {number} of the stream: {error} Mend it, or add --skip-bad.") from error
            print(json.dumps({"line": number, "error": str(error)}), flush=True)
            return
        step, mean, quantiles, ess, log_predictive = jax.device_get(
            (later.time, output.mean, output.quantiles, output.ess, output.log_predictive)
        )
        print(write_answer(int(step), mean, quantiles, later.levels, ess, log_predictive), flush=True)
        self.state = later
        if self.every is not None and int(step) % self.every == 0:
            self._keep()

    def _keep(self) -> None:
        from mcfo import online

        if self.path is None:
            return
        try:
            online.save(self.path, self.state, about=self.about)
        except OSError as error:
            raise InputError(
                f"Cannot write {self.path}: {error.strerror}. Choose another file with --state."
            ) from error
