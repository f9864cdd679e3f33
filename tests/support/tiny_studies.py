"""The five experiments of the paper at their smallest size: `python tiny_studies.py NAME OUT` runs one."""

import sys
from importlib import import_module
from pathlib import Path

import numpy as np

from mcfo.cli.reproduce import EXPERIMENTS
from mcfo.data.piano_rolls import KEYS
from mcfo.experiments.study import run_study

NETWORKS = {
    "music": {"latent": "2", "hidden": "3", "units": "3"},
    "pendulum": {"emission_units": "6", "encoder_units": "6,4"},
}


def write_rolls(folder, name="jsb", pieces=6):
    """Random pieces in the compact form."""
    random = np.random.default_rng(0)
    arrays = {}
    for split in ("train", "valid", "test"):
        lengths = random.integers(3, 9, size=pieces)
        roll = (random.random((lengths.sum(), KEYS)) < 0.05).astype(np.uint8)
        roll[:, :3] = roll[:, -3:] = 0
        roll[0, 40] = 1
        arrays |= {f"{split}_roll": np.packbits(roll, axis=1), f"{split}_lengths": lengths.astype(np.int32)}
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / f"{name}.npz", **arrays)
    return folder


def size_of(name, module):
    """The smallest size at which everything is still drawn and claimed."""
    preset = type(module.STUDY.presets["quick"])
    if name == "bounds":
        return preset(
            exact_particles=(1, 10, 100), exact_replicates=200, path_replicates=200, smc_replicates={1: 200, 10: 200},
            scan_particles=(1, 10), scan_replicates=100, growing_steps=(1, 10, 20), growing_particles=10,
            growing_replicates=100,
        )  # fmt: skip
    if name == "gradients":
        return preset(
            particles=(1, 10), costly_particles=1, replicates=60, long_particles=(10,), long_replicates=20,
            small_replicates=200, pimh_replicates=20,
        )  # fmt: skip
    if name == "lgssm":
        return preset(
            particles=(5, 8), sweeps=(1,), pimh_particles=5, evaluation_particles=5, seeds=(0, 1), steps=40, batch=4,
            series=8, test_series=4, watched=4, length=4,
        )  # fmt: skip
    if name == "music":
        course = module.Course(4, 2, 1e-3, window=3, transposed=1, evaluations=1)
        return preset(
            (("jsb", course),), methods=("mcfo-smc", "iwae"), particles=(2,), seeds=(0, 1), validation_particles=3,
            test_particles=4, test_runs=2,
        )  # fmt: skip
    return preset(
        methods=("nasmc", "mcfo-lag"), particles=(2,), seeds=(0, 1), steps=20, batch=2, series=4, test_series=3,
        length=4, evaluated=2, evaluation_particles=6, evaluations=2, last=0.6,
    )  # fmt: skip


def run_tiny(name, out, *, seed=3):
    """Runs a study, or the rest of it, in a folder."""
    module = import_module(EXPERIMENTS[name])
    data = write_rolls(out.with_name(f"{out.name}-rolls")) if name == "music" else None
    if name in NETWORKS:
        build = module.build
        module.build = lambda model, series, options: build(model, series, {**NETWORKS[name], **options})
    study = module.STUDY(size_of(name, module), seed, data)
    return run_study(study, out, preset="quick", command=f"mcfo reproduce {name}")


if __name__ == "__main__":
    run_tiny(sys.argv[1], Path(sys.argv[2]))
