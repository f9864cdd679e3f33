"""Numbers, lists, names, settings and objectives as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mcfo.data.run_record import number, text, whole
from mcfo.files import nested

MISSING = "–"
_LONGEST = 160
_MOST = 8
"""Entries of a list that are written out."""
_ORDINALS = ("first", "second", "third", "fourth", "fifth")
_RULES = {
    "DReG": "the doubly reparameterized gradient",
    "FilterScore": "the filter score",
    "Fisher": "Fisher's identity",
    "InclusiveKL": "the inclusive KL",
    "PathKL": "the inclusive KL of whole paths",
    "Pathwise": "the pathwise gradient through the histories",
    "Reparameterized": "the reparameterized gradient of each step",
    "ResamplingScore": "the pathwise gradient with the score of the ancestors",
    "StickingTheLanding": "sticking the landing",
}


def fixed(value: float | None, decimals: int) -> str:
    """The number with this many decimals; with a power of ten where it is too large for that."""
    if value is None:
        return MISSING
    return f"{value:.{decimals}f}" if abs(value) < 1e6 else f"{value:.{decimals}e}"


def significant(value: float | None, digits: int = 4) -> str:
    """The number with this many significant digits, trailing zeros among them."""
    if value is None or value == 0:
        return MISSING if value is None else "0"
    return f"{value:#.{digits}g}".rstrip(".") if 1e-3 <= abs(value) < 1e6 else f"{value:.{digits - 1}e}"


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def percent(share: float) -> str:
    """A share with as many digits as it needs."""
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}" if share >= 0.001 else "less than 0.1%"


def counted(count: int, one: str, many: str | None = None) -> str:
    """1 seed, 2 seeds; "series" has a plural of its own."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def listed(items: Iterable[Any], last: str = "and") -> str:
    """a, b and c."""
    *first, final = [str(item) for item in items] or ["none"]
    return f"{', '.join(first)} {last} {final}" if first else final


def seeds_named(seeds: Sequence[int]) -> str:
    """Seed 3; seeds 0, 1 and 2; many only by the first of them."""
    shown = [*seeds[:_MOST], f"{len(seeds) - _MOST} more"] if len(seeds) > _MOST else seeds
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {listed(shown)}"


def shortened(value: str, longest: int = _LONGEST) -> str:
    """The text, or its beginning."""
    return value if len(value) <= longest else f"{value[: longest - 1]}…"


def parameter_name(path: str) -> str:
    """A dotted path as text: model.emission_noise.standard_deviation is the "standard deviation of emission noise",
    model.seasons.0.scale the "scale of first season"."""
    module, _, rest = path.partition(".")
    parts = (rest if module == "model" and rest else path).replace("_", " ").split(".")
    if len(parts) == 3 and parts[1].isdigit() and int(parts[1]) < len(_ORDINALS):
        parts = [f"{_ORDINALS[int(parts[1])]} {parts[0].removesuffix('s')}", parts[2]]
    return shortened(f"{parts[1]} of {parts[0]}" if len(parts) == 2 else ", ".join(parts), 60)


def number_name(label: str) -> str:
    """A number of a model by its name and index as text: "standard deviation of emission noise [0]"."""
    name, bracket, index = label.partition("[")
    return parameter_name(f"model.{name}") + (f" {bracket}{index}" if bracket else "")


def data_text(data: Any) -> str:
    """40 series with 4000 steps in all and 1 dimension (series.csv)."""
    series, steps, dimensions = (whole(nested(data, name)) for name in ("series", "steps", "dimensions"))
    file = text(nested(data, "file"))
    start = "data" if series is None else counted(series, "series", "series")
    parts = [] if steps is None else [f"{counted(steps, 'step')}{' in all' if series != 1 else ''}"]
    parts += [] if dimensions is None else [counted(dimensions, "dimension")]
    return start + (f" with {listed(parts)}" if parts else "") + (f" ({shortened(file)})" if file else "")


def shape_text(shape: Any) -> str:
    """64 × 32; a single number is a scalar."""
    sizes = [whole(size) for size in shape] if isinstance(shape, list | tuple) else [None]
    if any(size is None for size in sizes):
        return MISSING
    return " × ".join(str(size) for size in sizes) or "scalar"


def setting_texts(value: Any, name: str = "") -> list[tuple[str, str]]:
    """Nested settings as dotted names with their values; empty objects are left out."""
    if isinstance(value, dict):
        parts = [setting_texts(part, f"{name}.{key}" if name else str(key)) for key, part in value.items()]
        return [pair for part in parts for pair in part]
    return [(shortened(name), _value_text(value))]


def _value_text(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        shown = [_value_text(part) for part in value[:_MOST]]
        more = [f"… ({len(value)} in all)"] if len(value) > _MOST else []
        return shortened(", ".join([*shown, *more])) or "none"
    return shortened(str(value)) or "empty"


def objective_text(objective: Any) -> str:
    """Which estimator learns the model, and which the proposal."""
    if nested(objective, "name") == "exact":
        method = text(nested(objective, "method"))
        return (
            f"Objective exact: the likelihood itself is maximized{f', by {shortened(method, 80)}' if method else ''}."
        )
    sides = []
    for side, what in (("theta", "the model"), ("phi", "the proposal")):
        estimator = nested(objective, side)
        if isinstance(estimator, dict):
            sides.append(f"{what} is learned by {_rule_text(estimator)}, from {_sampler_text(estimator)}")
        elif isinstance(objective, dict) and side in objective:
            sides.append(f"{what} is not learned")
    name = shortened(text(nested(objective, "name")) or "without a name", 80)
    return f"Objective {name}: {'; '.join(sides) or 'config.json says no more of it'}."


def _rule_text(estimator: Any) -> str:
    rule = nested(estimator, "rule")
    kind = text(nested(rule, "kind")) or text(nested(rule, "name")) or text(rule) or "a rule that is not named"
    return _RULES.get(kind, shortened(kind)) + _options(rule)


def _sampler_text(estimator: Any) -> str:
    sampler = nested(estimator, "sampler")
    kind = text(nested(sampler, "kind"))
    if kind == "PIMH":
        sweeps = whole(nested(sampler, "sweeps")) or 0
        return f"PIMH with {counted(sweeps, 'sweep')} of {_sampler_text(sampler)}"
    particles = whole(nested(sampler, "particles"))
    size = "particles" if particles is None else counted(particles, "particle")
    if kind != "SMC":
        return f"{shortened(kind or 'a sampler that is not named')} with {size}"
    criterion = nested(sampler, "criterion")
    when = text(nested(criterion, "kind")) or text(criterion)
    if when == "Never":
        return f"importance sampling with {size}, never resampled"
    scheme = text(nested(sampler, "resampling", "kind")) or text(nested(sampler, "resampling"))
    threshold = number(nested(criterion, "threshold"))
    moment = {
        "Always": " at every step",
        "ESSBelow": "" if threshold is None else f" where the ESS is below {threshold:.0%} of K",
    }.get(when or "", "")
    how = f" ({shortened(scheme).lower()} resampling{moment})" if scheme else ""
    return f"a particle filter with {size}{how}"


def _options(rule: Any) -> str:
    """The options of a rule that a caller chose, such as a lag: plain values, without what follows from its kind."""
    chosen = rule if isinstance(rule, dict) else {}
    shown = [
        f"{shortened(name, 40)} {_value_text(value)}"
        for name, value in chosen.items()
        if isinstance(value, int | float | str) and name not in ("kind", "name", "learns") and name[:1] != "_"
    ]
    return f" ({', '.join(shown)})" if shown else ""
