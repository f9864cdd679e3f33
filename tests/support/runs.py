"""Run folders as `mcfo fit` leaves them, with made-up numbers."""

import json
import math
from pathlib import Path
from typing import Any

STEPS = 2000


def make_config(**changes: Any) -> dict[str, Any]:
    smc = {"kind": "SMC", "particles": 100, "resampling": {"kind": "Systematic"}, "criterion": {"kind": "Always"}}
    shapes = {"transition_matrix": [1, 1], "transition_noise": [1, 1], "emission_noise": [1], "initial_noise": [1]}
    return {
        "kind": "fit",
        "command": "mcfo fit linear-gaussian --data series.csv --out run --steps 2000 --seeds 0,1,2",
        "model": {
            "name": "linear-gaussian",
            "class": "LinearGaussian",
            "options": {"latent": 1},
            "parameters": {f"model.{name}": shape for name, shape in shapes.items()},
            "fixed": ["model.initial_noise"],
        },
        "proposal": {"class": "AffineGaussian", "parameters": {"proposal.gain": [1, 1], "proposal.weights": [64, 32]}},
        "objective": {
            "name": "mcfo",
            "theta": {"sampler": smc, "rule": {"kind": "FilterScore"}},
            "phi": {"sampler": {**smc, "particles": 10}, "rule": {"kind": "DReG"}},
        },
        "data": {"file": "series.csv", "series": 40, "steps": 4000, "dimensions": 1, "sha256": "0123456789abcdef" * 4},
        "validation": {"file": "held-out.csv", "series": 10, "steps": 1000, "dimensions": 1, "sha256": "fe" * 32},
        "settings": {
            "steps": STEPS,
            "batch": 10,
            "seeds": [0, 1, 2],
            "optimizer": "adam",
            "learning_rate": 0.01,
            "optimizer_options": {"b1": 0.9},
            "schedule_options": {},
            "clip": None,
        },
        "devices": 2,
        "precision": "float32",
        "versions": {"mcfo": "0.1.0", "jax": "0.10.2", "equinox": "0.13.2"},
        **changes,
    }


def make_line(seed: int, step: int, **changes: Any) -> dict[str, Any]:
    """One line of the metrics: a descent to 1.1 nats per step, with a wave for noise."""
    rest = math.exp(-step / 250)
    wave = math.sin(step * 0.7 + seed) * 0.02 + math.sin(step * 0.11 + 2 * seed) * 0.015
    line = {
        "seed": seed,
        "step": step,
        "loss": 100 * (1.1 + 2 * rest + wave),
        "log_evidence_per_step": -(1.12 + (2 + 0.2 * seed) * rest + wave),
        "ess": 95 - 60 * rest + 30 * wave,
        "grad_norm_theta": 8 * rest + 0.3 + 4 * abs(wave),
        "grad_norm_phi": 3 * rest + 0.05 + abs(wave),
        "skipped": 0,
        "seconds": step * 0.0165,
    }
    if step % 100 == 0:
        line |= {"validation_nll_per_step": 1.11 + 2.1 * rest + 0.2 * wave, "validation_ess": 94 - 58 * rest}
    return {**line, **changes}


def make_lines(*seeds: int, steps: int = STEPS, **changes: Any) -> list[dict[str, Any]]:
    return [make_line(seed, step, **changes) for step in range(10, steps + 1, 10) for seed in seeds]


def make_seed(seed: int, **changes: Any) -> dict[str, Any]:
    """The result of one seed; changes are of its evaluation."""
    return {
        "seed": seed,
        "skipped": 0,
        "best_step": 900 + 100 * seed,
        "evaluation": {
            "log_evidence": -1102.4 - seed,
            "nll_per_step": 1.1024 + 0.001 * ((seed + 2) % 3),
            "ess": 95.0 - seed,
            "ess_min": 13.2,
            "particles": 100,
            "prediction_rmse": 1.31,
            "series": 10,
            "steps": 1000,
            "collapsed": 0,
            "exact_nll_per_step": 1.1003,
            **changes,
        },
        "parameters": {
            "model.transition_matrix": [[0.9 + 0.01 * seed]],
            "model.transition_noise": [[1.02]],
            "model.emission_noise": [0.52 - 0.005 * seed],
            "model.initial_noise": [1.0],
            "proposal.gain": [[0.6123]],
            "proposal.weights": [[math.sin(row * 32 + column + seed) for column in range(32)] for row in range(64)],
        },
    }


def make_results(*seeds: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "stopped": "finished",
        "steps": STEPS,
        "seconds": 33.1,
        "selected": "average",
        "evaluated_on": "validation",
        "seeds": list(seeds),
        "warnings": [],
        **changes,
    }


def write_folder(
    folder: Path,
    config: dict[str, Any] | None = None,
    lines: list[dict[str, Any]] | None = None,
    results: dict[str, Any] | None = None,
    *,
    torn: str = "",
) -> Path:
    """Writes what is given, and after the metrics what a killed process left of a line."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(make_config() if config is None else config))
    if lines is not None:
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + torn)
    if results is not None:
        (folder / "results.json").write_text(json.dumps(results))
    return folder
