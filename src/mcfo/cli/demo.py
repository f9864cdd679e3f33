"""`mcfo demo`: see it learn."""

import os
from pathlib import Path
from typing import Annotated

import typer

from mcfo import interrupts
from mcfo.cli.options import Force, Seed, check_out, fail, messages


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report and its figures; it must not exist yet.")] = Path(
        "mcfo-demo"
    ),
    steps: Annotated[int, typer.Option(help="Updates of each method.", min=100, max=100_000)] = 1500,
    particles: Annotated[int, typer.Option(help="Number of particles.", min=2, max=10_000)] = 100,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """See it learn: two objectives on the paper's linear Gaussian model, beside the exact answer.

    It takes about a minute, and ends with a report and the next thing to try.
    """
    check_out(out, force)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"Cannot create the folder {out}: {error.strerror}. Choose another one with --out.")
    if not os.access(out, os.W_OK):
        fail(f"Cannot write into the folder {out}. Choose another one with --out.")
    try:
        with messages(), interrupts.deferred():
            from mcfo.learning.devices import use_every_core

            use_every_core()
            from mcfo.experiments.demo import run

            run(out, steps=steps, particles=particles, seed=seed)
    except typer.Exit:
        if not any(out.iterdir()):
            out.rmdir()
        raise
