"""What the paper claims of pendulum videos, and what came out, each with its numbers."""

from __future__ import annotations

import math

import numpy as np

from mcfo.experiments.outcome import clearly
from mcfo.experiments.pendulum.summary import Outcomes


def claims(outcomes: Outcomes, baselines: dict[str, float]) -> list[str]:
    """One sentence or two for each question."""
    methods = dict.fromkeys(method for method, _ in outcomes.places)
    sizes = sorted({particles for _, particles in outcomes.places})
    found = []
    for method in ("mcfo-smc", "mcfo-pimh"):
        if "aesmc" in methods and method in methods:
            found += [_against_aesmc(outcomes, method, size) for size in sizes]
    if "nasmc" in methods:
        found += [_nasmc(outcomes, size, baselines) for size in sizes]
    if len(sizes) > 1:
        found += [_larger(outcomes, method, sizes) for method in methods]
    if {"aesmc", "mcfo-smc", "mcfo-dreg"} <= methods.keys():
        found += [_dreg(outcomes, size) for size in sizes]
        if len(sizes) > 1:
            found.append(_repaired(outcomes, sizes))
    if {"aesmc", "mcfo-smc", "mcfo-lag"} <= methods.keys():
        found += [_lag(outcomes, size) for size in sizes]
    return [*found, _motion(outcomes, sizes), _baselines(outcomes, baselines)]


def _against_aesmc(outcomes: Outcomes, method: str, size: int) -> str:
    words = []
    for metric, name, lower_is_better in (("prediction", "prediction error", True), ("ess_at_test", "ESS", False)):
        ours, theirs = (outcomes.of(one, size, metric) for one in (method, "aesmc"))
        better = ours.mean < theirs.mean if lower_is_better else ours.mean > theirs.mean
        words.append(
            f"its {name} is {ours.words()} against {theirs.words()}, {'as' if better else 'not as'} the paper says"
            f"{clearly(ours, theirs)}"
        )
    return f"{method} and AESMC, K = {size}: {'; '.join(words)}."


def _nasmc(outcomes: Outcomes, size: int, baselines: dict[str, float]) -> str:
    error = outcomes.of("nasmc", size, "prediction")
    below, seeds = int((error.by_seed < baselines["persistence"]).sum()), len(outcomes.runs("nasmc", size))
    ended = {seeds: "it does not fail here", 0: "it fails here too"}.get(below, "it fails with some seeds")
    others = [outcomes.of(method, size, "prediction").mean for method, count in outcomes.places if count == size]
    return (
        f"NASMC, K = {size}: the paper says that it fails to converge. Here its prediction error ends at "
        f"{error.words()}, with {below} of {seeds} seeds below that of persistence, {baselines['persistence']:.1f}: "
        f"{ended}. All methods' means are from {np.nanmin(others):.1f} to {np.nanmax(others):.1f}."
    )


def _larger(outcomes: Outcomes, method: str, sizes: list[int]) -> str:
    first, last = (outcomes.of(method, size, "ess_at_test") for size in (sizes[0], sizes[-1]))
    fell = last.mean < first.mean
    return (
        f"A larger K, {method}: the ESS of the proposal, always with the same number of particles at evaluation, "
        f"goes from {first.words()} at K = {sizes[0]} to {last.words()} at K = {sizes[-1]}: it "
        f"{'falls' if fell else 'does not fall'}{clearly(first, last)}."
    )


def _dreg(outcomes: Outcomes, size: int) -> str:
    words = []
    for metric, name in (("ess_at_test", "ESS"), ("prediction", "prediction error")):
        ours, theirs, plain = (outcomes.of(method, size, metric) for method in ("mcfo-dreg", "aesmc", "mcfo-smc"))
        words.append(
            f"{name} {ours.words()} against {theirs.words()} of AESMC{clearly(ours, theirs)} and {plain.words()} of "
            f"mcfo-smc, which has 10 particles for phi whatever K is{clearly(ours, plain)}"
        )
    return f"DReG for phi, with K particles for it as AESMC has, K = {size}: {'; '.join(words)}."


def _repaired(outcomes: Outcomes, sizes: list[int]) -> str:
    changes = {}
    for method in ("aesmc", "mcfo-dreg"):
        first, last = (outcomes.of(method, size, "ess_at_test").mean for size in (sizes[0], sizes[-1]))
        changes[method] = last / first - 1
    fell = changes["aesmc"] < 0
    better = changes["mcfo-dreg"] > changes["aesmc"]
    return (
        f"Does DReG repair what a larger K does to the proposal? From K = {sizes[0]} to {sizes[-1]}, for theta and "
        f"phi, AESMC's ESS changes by {changes['aesmc']:+.0%} and DReG's by {changes['mcfo-dreg']:+.0%}: "
        + ("there was nothing to repair." if not fell else "it does better." if better else "it does not.")
    )


def _lag(outcomes: Outcomes, size: int) -> str:
    words = []
    for metric, name in (("prediction", "prediction error"), ("ess_at_test", "ESS")):
        ours, plain, theirs = (outcomes.of(method, size, metric) for method in ("mcfo-lag", "mcfo-smc", "aesmc"))
        words.append(
            f"{name} {ours.words()} against {plain.words()} of mcfo-smc{clearly(ours, plain)} and {theirs.words()} of "
            f"AESMC{clearly(ours, theirs)}"
        )
    return f"Weights of three steps later for theta and phi, K = {size}: {'; '.join(words)}."


def _motion(outcomes: Outcomes, sizes: list[int]) -> str:
    words = []
    for size in sizes:
        each = [
            f"{method} {outcomes.motion(method, size).words()}" for method, count in outcomes.places if count == size
        ]
        words.append(f"K = {size}: {', '.join(each)}")
    return (
        "The speed, which no picture shows: the share of the rod's motion that predictions foresee, one for whoever "
        f"knows it. {'; '.join(words)}."
    )


def _baselines(outcomes: Outcomes, baselines: dict[str, float]) -> str:
    words = [
        _best(outcomes, metric, name, baselines)
        for metric, name in (
            ("prediction", "with the picture at the predicted mean latent, as in the paper,"),
            ("prediction_by_mean", "with the predictive mean"),
        )
    ]
    return (
        f"Without a model the error is {baselines['static']:.1f} for the mean picture, "
        f"{baselines['last observed']:.1f} for the binary frame before, which is what a model sees, and "
        f"{baselines['persistence']:.1f} for the gray one (persistence). {' '.join(words)} Whoever knows the true "
        f"state and the simulator has {baselines['true state']:.1f} with the picture at the expected angle, "
        f"{_beside(baselines['true state'], baselines['persistence'])} persistence, and "
        f"{baselines['true state, mean']:.1f} with the mean picture over the angle's noise, "
        f"{_beside(baselines['true state, mean'], baselines['persistence'])} it."
    )


def _best(outcomes: Outcomes, metric: str, name: str, baselines: dict[str, float]) -> str:
    means = {place: outcomes.of(*place, metric).mean for place in outcomes.places}
    errors = {place: mean for place, mean in means.items() if math.isfinite(mean)}
    if not errors:
        return f"No learned one {name} has a finite error."
    best, worst = min(errors, key=errors.__getitem__), max(errors, key=errors.__getitem__)
    return (
        f"The best learned one {name} ({best[0]}, K = {best[1]}) has {errors[best]:.1f}, "
        f"{_beside(errors[best], baselines['persistence'])} persistence, "
        f"{_beside(errors[best], baselines['last observed'])} the binary frame before and "
        f"{_beside(errors[best], baselines['static'])} the mean picture; the worst ({worst[0]}, K = {worst[1]}) has "
        f"{errors[worst]:.1f}, {_beside(errors[worst], baselines['persistence'])} persistence and "
        f"{_beside(errors[worst], baselines['static'])} the mean picture."
    )


def _beside(value: float, reference: float) -> str:
    share = value / reference - 1
    return f"{abs(share):.0%} {'above' if share > 0 else 'below'}"
