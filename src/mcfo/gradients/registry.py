"""Rules by name."""

from __future__ import annotations

from collections.abc import Callable

from mcfo.errors import nearest
from mcfo.gradients.rules import DReG, Pathwise, Reparameterized, Rule, Side, StickingTheLanding
from mcfo.gradients.score import FilterScore, Fisher, InclusiveKL, PathKL, ResamplingScore

RULES: dict[Side, dict[str, Callable[[], Rule]]] = {
    "theta": {
        "filter-score": FilterScore,
        "fisher": Fisher,
        "pathwise": Pathwise,
        "resampling-score": ResamplingScore,
    },
    "phi": {
        "reparameterized": Reparameterized,
        "dreg": DReG,
        "sticking-the-landing": StickingTheLanding,
        "inclusive-kl": InclusiveKL,
        "path-kl": PathKL,
        "pathwise": Pathwise,
        "resampling-score": ResamplingScore,
    },
}
_NUMBERED: dict[Side, dict[str, Callable[[int], Rule]]] = {
    "theta": {
        "fisher-lag-": lambda number: Fisher(lag=number),
        "filter-score-draws-": lambda number: FilterScore(draws=number),
    },
    "phi": {"path-kl-lag-": lambda number: PathKL(lag=number)},
}


def rule_by_name(name: str | Rule, side: Side) -> Rule:
    """Return the rule for theta or phi of this name; a rule is returned unchanged.

    `fisher-lag-10` is Fisher(lag=10), `path-kl-lag-3` PathKL(lag=3), `filter-score-draws-4` FilterScore(draws=4).
    """
    if isinstance(name, Rule):
        return name
    for prefix, make in _NUMBERED[side].items():
        if name.startswith(prefix) and name.removeprefix(prefix).isdecimal():
            return make(int(name.removeprefix(prefix)))
    known = RULES[side]
    if name not in known:
        raise ValueError(f"There is no rule {name!r} for {side}. {nearest(str(name), known)}")
    return known[name]()


def name_of(rule: Rule) -> str:
    """Return the name by which [`rule_by_name`][mcfo.gradients.registry.rule_by_name] finds a rule."""
    for number in ("lag", "draws"):
        if (value := getattr(rule, number, None)) is not None:
            return f"{rule.name}-{number}-{value}"
    return rule.name
