"""Rules by name."""

from __future__ import annotations

from collections.abc import Callable

from mcfo.gradients.pathwise import DReG, Pathwise, Reparameterised, StickingTheLanding
from mcfo.gradients.rules import Rule, Side
from mcfo.gradients.score import FilterScore, Fisher, InclusiveKL, PathKL, ResamplingScore
from mcfo.suggestions import nearest

RULES: dict[Side, dict[str, Callable[[], Rule]]] = {
    "theta": {
        "filter-score": FilterScore,
        "fisher": Fisher,
        "pathwise": Pathwise,
        "resampling-score": ResamplingScore,
    },
    "phi": {
        "reparameterised": Reparameterised,
        "dreg": DReG,
        "sticking-the-landing": StickingTheLanding,
        "inclusive-kl": InclusiveKL,
        "path-kl": PathKL,
        "pathwise": Pathwise,
        "resampling-score": ResamplingScore,
    },
}
_LAG = "fisher-lag-"


def rule_by_name(name: str | Rule, side: Side) -> Rule:
    """A rule for theta or phi from its name; `fisher-lag-10` is Fisher(lag=10). A rule passes as it is."""
    if isinstance(name, Rule):
        return name
    if side == "theta" and isinstance(name, str) and name.startswith(_LAG) and name.removeprefix(_LAG).isdecimal():
        return Fisher(lag=int(name.removeprefix(_LAG)))
    known = RULES[side]
    if name not in known:
        raise ValueError(f"There is no rule {name!r} for {side}. {nearest(str(name), known)}")
    return known[name]()
