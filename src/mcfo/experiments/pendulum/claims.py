"""What the paper claims of pendulum videos, and what came out, each with its numbers."""

from __future__ import annotations

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
    if {"mcfo-smc", "mcfo-dreg"} <= methods.keys():
        found += [_dreg(outcomes, size) for size in sizes]
    if {"aesmc", "mcfo-smc", "mcfo-lag"} <= methods.keys():
        found += [_lag(outcomes, size) for size in sizes]
    return [*found, _motion(outcomes, sizes), _baselines(outcomes, baselines)]


def _against_aesmc(outcomes: Outcomes, method: str, size: int) -> str:
    words = []
    for metric, name, lower_is_better in (("prediction", "prediction error", True), ("ess_at_test", "ESS", False)):
        ours, theirs = (outcomes.of(one, size, metric) for one in (method, "aesmc"))
        better = (ours.mean < theirs.mean) == lower_is_better
        words.append(
            f"its {name} is {ours.words()} against {theirs.words()}, {'as' if better else 'not as'} the paper says"
            f"{clearly(ours, theirs)}"
        )
    return f"{method} and AESMC, K = {size}: {'; '.join(words)}."


def _nasmc(outcomes: Outcomes, size: int, baselines: dict[str, float]) -> str:
    error = outcomes.of("nasmc", size, "prediction")
    below, seeds = int((error.by_seed < baselines["persistence"]).sum()), len(error.by_seed)
    ended = {seeds: "it does converge", 0: "it has not converged"}.get(below, f"it converges with {below} of {seeds}")
    return (
        f"NASMC, K = {size}: the paper says that it fails to converge. Here its prediction error ends at "
        f"{error.words()}, with {below} of {seeds} seeds below that of persistence, {baselines['persistence']:.1f}: "
        f"{ended}."
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
    plain, ours = (outcomes.of(method, size, "ess_at_test") for method in ("mcfo-smc", "mcfo-dreg"))
    errors = [outcomes.of(method, size, "prediction") for method in ("mcfo-smc", "mcfo-dreg")]
    return (
        f"DReG for phi, K = {size}: ESS {ours.words()} against {plain.words()} with the paper's estimator"
        f"{clearly(ours, plain)}; prediction error {errors[1].words()} against {errors[0].words()}."
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
        f"{baselines['persistence']:.1f} for the grey one (persistence). {' '.join(words)} Whoever knows the true "
        f"state and the simulator has {baselines['true state']:.1f}: more than "
        f"{1 - baselines['true state'] / baselines['persistence']:.0%} below persistence is out of reach."
    )


def _best(outcomes: Outcomes, metric: str, name: str, baselines: dict[str, float]) -> str:
    errors = {place: outcomes.of(*place, metric).mean for place in outcomes.places}
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
