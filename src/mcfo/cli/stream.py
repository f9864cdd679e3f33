"""`mcfo stream`: observations in, states out, one JSON line for each."""

import json
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

from mcfo import interrupts
from mcfo.cli import options as opt
from mcfo.cli.options import exists, fail, forget_output, messages, read_levels, refusing, status, writing
from mcfo.errors import InputError, RunError

_learning = opt.panel("Learning, with --learn")


def stream(
    run: opt.RunFolder,
    learn: Annotated[bool, opt.main("Update the model and the proposal with every observation.", "--learn")] = False,
    state: Annotated[
        Path | None,
        opt.main(
            "Save the state in this .npz file: at the end, on SIGTERM and SIGINT, and with --every. If it exists, "
            "resume from it."
        ),
    ] = None,
    skip_bad: Annotated[
        bool, opt.main("Answer malformed lines with an error instead of ending.", "--skip-bad")
    ] = False,
    seed: opt.Seed = 0,
    particles: opt.Particles = 1000,
    quantiles: opt.Quantiles = None,
    every: Annotated[int | None, opt.output("Number of steps after which the state is saved too.", min=1)] = None,
    learning_rate: Annotated[float, _learning("Learning rate.", min=1e-12, max=1e3)] = 1e-3,
    optimizer: Annotated[str, _learning("An optimizer of optax, by name.")] = "adam",
    theta: Annotated[
        str | None,
        _learning(
            "The gradient rule for the model: fisher-lag-20, another lag, or filter-score.",
            show_default="fisher-lag-20, filter-score for networks",
        ),
    ] = None,
    phi: Annotated[str, _learning("The gradient rule for the proposal.")] = "dreg",
    run_seed: opt.RunSeed = None,
    model: opt.OwnModel = None,
    proposal: opt.OwnProposal = None,
    trust_code: opt.TrustCode = False,
) -> None:
    """Filter observations as they come, one JSON line in and one out.

    Each line of standard input is a number, an array or an object with the names of columns and inputs, null for what
    is missing. Each is answered by one line: mean and quantiles of the state, effective sample size, and the
    log-density of the observation given those before.
    """
    levels = read_levels(quantiles)
    if every is not None and state is None:
        fail("--every says when to save the state. Say where, with --state FILE.")
    if state is not None:
        if state.suffix.lower() != ".npz":
            fail(f"--state {state} must end in .npz. Choose another name.")
        if not state.parent.is_dir():
            fail(f"There is no folder {state.parent} for {state.name}. Create it, or choose another with --state.")
        if exists(state) and not state.is_file():
            fail(f"{state} is not a file. Choose another one with --state.")
    exists(run)
    rules = {"learning_rate": learning_rate, "optimizer": optimizer, "theta": theta, "phi": phi}
    with messages():
        opened = _open(run, (model, proposal), run_seed, seed, particles, levels, rules if learn else None)
        _Stream(*opened, state, every, skip_bad).run()


def _open(
    run: Path,
    own: tuple[str | None, str | None],
    run_seed: int | None,
    seed: int,
    particles: int,
    levels: dict[str, Any],
    rules: dict[str, Any] | None,
) -> tuple[Any, Any, dict[str, Any]]:
    """The stream before its first observation, its run, and what tells it from others."""
    import jax

    from mcfo import online
    from mcfo.files import nested
    from mcfo.learning.parameters import Modules, digest
    from mcfo.learning.saved_runs import load_run

    with status(f"Loading {run}"):
        saved = load_run(run, model=own[0], proposal=own[1])
    learned = saved.choose(run_seed)
    if saved.inputs.calendar is not None:
        raise InputError(f"The model in {run} reads the calendar, but a stream has no dates. Use mcfo forecast.")
    learning = None
    if rules is not None:
        fixed = nested(saved.config, "settings", "fixed")
        fixed = tuple(str(one) for one in fixed) if isinstance(fixed, list) else ()
        learning = online.Learning(fixed=fixed, **rules)
    with refusing(f"The model in {run} cannot be streamed", AttributeError):
        state = online.init(
            learned.model,
            learned.proposal,
            key=jax.random.key(seed),
            particles=particles,
            learning=learning,
            inputs=saved.inputs.size or None,
            **levels,
        )
    return state, saved, {"model": digest(Modules(learned.model, learned.proposal)), "seed": seed}


class _Stopped(Exception):
    """A signal came while nothing was being done."""


class _Stream:
    """Answers lines until they end or a signal comes.

    The saved state is always that after the last answer, so that whoever sends the lines knows where to resume.
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
        self.waiting = self.stopped = self.interrupted = False

    def run(self) -> None:
        from mcfo import online

        if self.path is not None and self.path.exists():
            self.state = online.restore(self.path, self.state, about=self.about)
            print(f"mcfo: resumes after step {int(self.state.time)}, from {self.path}", file=sys.stderr, flush=True)
        # Compiled before the first line comes, so that all are answered at the same rate.
        with status("Compiling"):
            online.step(self.state, None, inputs=[1.0] * self.inputs.size or None)
        if self.path is not None:
            interrupts.set_outcome(f"The state is in {self.path}; the same command resumes.")
        with interrupts.deferred():
            self._run_until_stopped()
            if self.interrupted:
                raise interrupts.Interrupted

    def _run_until_stopped(self) -> None:
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            self._answer_all()
        except _Stopped:
            pass
        except BrokenPipeError:
            forget_output()  # nobody reads any more
        except OSError as error:
            forget_output()
            raise RunError(
                f"Cannot write the answer after step {int(self.state.time)}: {error.strerror}. Make room, and resume "
                "with the line after it."
            ) from error
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._save()
            self._count()

    def _stop(self, number: int, frame: Any) -> None:
        self.stopped, self.interrupted = True, number == signal.SIGINT
        if self.waiting:
            raise _Stopped

    def _answer_all(self) -> None:
        from mcfo.data.jsonl import read_lines

        lines, number = read_lines(sys.stdin.buffer), 0
        while not self.stopped:
            self.waiting = True
            line = next(lines, None)
            self.waiting = False
            if line is None:
                return
            number += 1
            if isinstance(line, InputError) or line.strip():
                self._answer(line, number)

    def _answer(self, line: str | InputError, number: int) -> None:
        import jax

        from mcfo import online
        from mcfo.data.jsonl import read_line, write_answer

        try:
            if isinstance(line, InputError):
                raise line
            inputs = self.inputs
            read = read_line(line, self.columns, inputs.names, timed=inputs.unit is not None)
            self.saved.check(read.values)
            later, output = online.step(self.state, read.values, inputs=read.inputs)
        except InputError as error:
            if not self.skip_bad:
                raise InputError(f"Line {number} of the stream: {error} Correct it, or add --skip-bad.") from error
            print(json.dumps({"line": number, "error": str(error)}), flush=True)
            return
        step, answer = jax.device_get((later.time, output))
        numbers = answer.mean, answer.quantiles, later.levels, answer.ess, answer.log_predictive
        print(write_answer(int(step), *numbers, refused=bool(answer.refused)), flush=True)
        self.state = later
        if self.every is not None and int(step) % self.every == 0:
            self._save()

    def _count(self) -> None:
        """Say what was not learned from."""
        if refused := int(self.state.refused):
            print(
                f"mcfo: {refused} of {int(self.state.time)} observations were refused: with them the filter collapses, "
                "so they were taken as missing.",
                file=sys.stderr,
            )
        if skipped := int(self.state.skipped):
            print(f"mcfo: {skipped} updates were not finite and were skipped.", file=sys.stderr)

    def _save(self) -> None:
        from mcfo import online

        if self.path is None:
            return
        with writing(self.path, "--state"):
            online.save(self.path, self.state, about=self.about)
