"""Runs that many tests of the command line look at, each fitted once for all the workers of a session."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mcfo.data.tables import write_series
from support.commands import SMALL, invoke
from support.learning import make_series


def built_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], None]) -> Path:
    """Return the folder that `build` fills, one for all workers. Tests copy what they change."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder = base / f"shared-{name}"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = base / f"unfinished-{name}"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            build(unfinished)
            unfinished.rename(folder)
    return folder


def _fit(folder: Path, model: str, data: str, *options: str) -> None:
    result = invoke("fit", model, "--data", folder / data, "--out", folder / "run", *SMALL, *options)
    assert result.exit_code == 0, result.output
    assert "Evaluate it: mcfo evaluate" in result.stdout


def _sizes(*options: str) -> list[str]:
    return [word for option in options for word in ("--set", option)]


def fit_classical(folder: Path) -> None:
    """Fit a linear Gaussian model, two seeds, to five series of different lengths."""
    write_series(folder / "series.csv", make_series(5), ["level"])
    _fit(folder, "linear-gaussian", "series.csv", "--seeds", "2")


def fit_counts(folder: Path) -> None:
    """Fit a model of counts to a single series."""
    (folder / "series.csv").write_text("visits\n3\n0\n4\n2\n")
    _fit(folder, "poisson-counts", "series.csv")


def fit_deep(folder: Path) -> None:
    """Fit a network to three videos of 4 x 5 pixels."""
    values = (np.random.default_rng(0).random((3, 6, 4, 5)) < 0.3).astype(np.uint8)
    np.savez(folder / "videos.npz", observations=values)
    sizes = _sizes("emission_units=8", "transition_units=8", "encoder_units=8,4", "proposal_units=4", "latent=2")
    _fit(folder, "deep", "videos.npz", *sizes)


def fit_recurrent(folder: Path) -> None:
    """Fit a recurrent network to two pieces of music of different lengths."""
    random = np.random.default_rng(0)
    pieces = {name: (random.random((steps, 88)) < 0.1).astype(np.uint8) for name, steps in (("a", 6), ("b", 8))}
    pieces["a"][[0, -1], 40] = 1  # it neither begins nor ends with silence
    pieces["b"][3:, :] = 0
    np.savez(folder / "pieces.npz", **pieces)
    _fit(folder, "vrnn", "pieces.npz", "--buckets", "1", *_sizes("latent=2", "hidden=3", "units=3"))
