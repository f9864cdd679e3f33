"""What the values of a column look like over time, and the model of the catalogue that follows from it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import chdtrc

from mcfo.data.suggestions import (
    has_trend,
    innovations,
    lagged_columns,
    seasonal_effects,
    suggest_cycle,
    suggest_periods,
    suggest_transform,
)

if TYPE_CHECKING:
    from mcfo.data.tables import Table

_LARGE = 100
"""The mean from which on whole numbers may be measurements."""
_SERIES = 10
"""The longest series, which are looked at for all."""
_FAR = 6
"""Robust standard deviations from which on a value is an outlier."""
_UNLIKE = 30
"""The ratio of sizes from which on columns or series seem to have different units."""


class Shape(NamedTuple):
    """What a column looks like over time; every statement is tested (see `suggestions`).

    - `kind`: "constant", "binary", "counts" (also of large numbers) or "numbers".
    - `periods`, `cycle`: seasons and a stochastic cycle in steps.
    - `outliers`: steps whose innovation is far from the rest.
    - `clustered`: the spread of the innovations comes in clusters.
    - `regimes`: values keep to one of two levels for a while.
    """

    kind: str
    mean: float
    periods: tuple[float, ...] = ()
    cycle: float | None = None
    transform: str = "none"
    trend: bool = False
    heavy_tails: bool = False
    outliers: int = 0
    clustered: bool = False
    returns: bool = False
    overdispersed: bool = False
    regimes: bool = False

    def texts(self) -> list[str]:
        """Return the statements for people."""
        found = [f"season of {period:.5g}" for period in self.periods]
        found += [f"cycle of about {self.cycle:.3g}"] if self.cycle is not None else []
        found += ["trend"] if self.trend else []
        found += ["spread grows with the level"] if self.transform == "log" else []
        found += ["spread in clusters"] if self.clustered else []
        found += ["heavy tails"] if self.heavy_tails else []
        found += [f"{self.outliers} outlier{'s' if self.outliers > 1 else ''}"] if self.outliers else []
        return found + (["two levels"] if self.regimes else [])


def describe_shape(series: Sequence[np.ndarray], frequency: str | None = None) -> Shape:
    """Look at a column in several series, (steps,) each: what most of the longest ones show."""
    known = np.concatenate([one[~np.isnan(one)] for one in series])
    if not len(known) or known.min() == known.max():
        return Shape("constant", float(known.mean()) if len(known) else np.nan)
    whole = (known == np.floor(known)).all() and known.min() >= 0
    kind = "binary" if np.isin(known, (0, 1)).all() else "counts" if whole else "numbers"
    longest = sorted(series, key=lambda one: -np.sum(~np.isnan(one)))[:_SERIES]
    each = [_shape(one, kind, frequency) for one in longest if np.sum(~np.isnan(one)) > 20]
    if not each or kind == "binary":
        return Shape(kind, float(known.mean()))
    half = len(each) / 2
    votes = Counter(period for one in each for period in one.periods)
    cycles = [one.cycle for one in each if one.cycle is not None]
    flags = {
        name: sum(bool(getattr(one, name)) for one in each) > half
        for name in ("trend", "heavy_tails", "clustered", "returns", "overdispersed", "regimes")
    }
    return Shape(
        kind,
        float(known.mean()),
        tuple(sorted(period for period, count in votes.items() if count > half)),
        float(np.median(cycles)) if len(cycles) > half else None,
        "log" if sum(one.transform == "log" for one in each) > half else "none",
        outliers=sum(one.outliers for one in each),
        **flags,
    )


def _shape(values: np.ndarray, kind: str, frequency: str | None) -> Shape:
    periods = tuple(suggest_periods(values, frequency))
    transform = suggest_transform(values, periods[0] if periods else None)
    if transform == "log":
        periods = tuple(suggest_periods(np.log(values), frequency))
    scaled = np.log(values) if transform == "log" else values
    rest = scaled.copy()
    for period in periods:
        rest = rest - seasonal_effects(rest, period)
    noise = innovations(rest)
    noise = noise[~np.isnan(noise)]
    scale = 1.4826 * float(np.median(np.abs(noise - np.median(noise)))) if len(noise) else 0.0
    mean = float(np.nanmean(values))
    about = Shape(kind, mean, periods, suggest_cycle(rest), transform, has_trend(rest))
    if scale <= 0 or len(noise) < 30:
        return about
    standard = (noise - np.median(noise)) / scale
    far = np.abs(standard) > _FAR
    few = 0 < far.sum() <= max(1, 0.02 * len(noise))
    clipped = np.clip(standard, -_FAR, _FAR)
    excess = np.mean((clipped - clipped.mean()) ** 4) / np.var(clipped) ** 2 - 3
    clustered = _clusters(clipped)
    plain = not (periods or about.trend or about.cycle)
    flat = plain and abs(mean) < 0.2 * np.nanstd(values) and abs(_correlation(values)) < 0.3
    return about._replace(
        heavy_tails=bool(excess > max(1.0, 5 * np.sqrt(24 / len(noise)))),
        outliers=int(far.sum()) if few else 0,
        clustered=clustered,
        returns=bool(flat and clustered),
        overdispersed=bool(kind == "counts" and np.var(noise) > 2 * mean),
        regimes=bool(plain and kind == "numbers" and not flat and _two_levels(values[~np.isnan(values)])),
    )


def _correlation(values: np.ndarray) -> float:
    """The autocorrelation at lag 1."""
    both = lagged_columns(values, 1)
    both = both[~np.isnan(both).any(axis=1)]
    return float(np.corrcoef(both.T)[0, 1]) if len(both) > 2 and (both.std(axis=0) > 0).all() else 0.0


def _clusters(standard: np.ndarray) -> bool:
    """The test of McLeod and Li on the squares, five lags, at 0.1 %."""
    squares = standard**2 - np.mean(standard**2)
    count = len(squares)
    sums = [squares[lag:] @ squares[:-lag] for lag in range(1, 6)]
    statistic = (
        count * (count + 2) * sum((one / (squares @ squares)) ** 2 / (count - lag) for lag, one in enumerate(sums, 1))
    )
    return bool(chdtrc(5, statistic) < 0.001)


def _two_levels(values: np.ndarray) -> bool:
    """Whether values keep to one of two levels for a while, and forget within each what came before.

    A random walk has two levels at times too, but within each it remembers.
    """
    if len(values) < 60:
        return False
    centers, upper = np.quantile(values, (0.1, 0.9)), np.zeros(len(values), bool)
    for _ in range(50):
        upper = np.abs(values - centers[1]) < np.abs(values - centers[0])
        if upper.all() or not upper.any():
            return False
        centers = np.array([values[~upper].mean(), values[upper].mean()])
    spread = np.sqrt(np.mean(np.where(upper, values - centers[1], values - centers[0]) ** 2))
    stays = np.mean(upper[1:] == upper[:-1])
    within = values - centers[upper.astype(int)]
    share = min(upper.mean(), 1 - upper.mean())
    switches = np.sum(upper[1:] != upper[:-1])
    apart = centers[1] - centers[0] > 3.5 * spread
    return bool(apart and share > 0.05 and switches >= 3 and stays > 0.8 and abs(_correlation(within)) < 0.5)


class Suggestion(NamedTuple):
    """The model of the catalogue that suits a table, with its options, and why.

    - `period`, `transform`: the season in steps, if there is one, and "log" or "none".
    - `reasons`: a sentence for each choice; `warnings`: what should be looked at before.
    - `others`: further models that may fit.
    """

    model: str
    options: Mapping[str, str]
    period: float | None
    transform: str
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    others: tuple[str, ...]

    def command(self, file: str, words: Sequence[str] = (), out: str = "run") -> str:
        """Return the command that learns the model; `words` are further options."""
        chosen = [word for name, value in self.options.items() for word in ("--set", f"{name}={value}")]
        return shlex.join(["mcfo", "fit", self.model, "--data", file, *words, *chosen, "--out", out])


def suggest(table: Table) -> Suggestion:
    """Suggest a model for a table from what its columns look like."""
    shapes = describe_shapes(table)
    spacing = table.on_grid().spacing
    uneven = spacing is not None and not spacing.even
    model, options, reasons, others = _choose(shapes, table.columns, uneven, any(table.inputs))
    shape = shapes[0] if len(shapes) == 1 else None
    period = shape.periods[0] if shape is not None and shape.periods else None
    transform = "none" if shape is None else shape.transform
    return Suggestion(model, options, period, transform, tuple(reasons), tuple(_warnings(table)), tuple(others))


def describe_shapes(table: Table) -> list[Shape]:
    """Return the shape of each column of a table."""
    whole = table.on_grid()
    values = [series.values() for series in whole.series_list]
    frequency = None if whole.frequency is None else whole.frequency.name or None
    return [describe_shape([one[:, column] for one in values], frequency) for column in range(len(table.columns))]


def _choose(
    shapes: Sequence[Shape], columns: Sequence[str], uneven: bool, driven: bool
) -> tuple[str, dict[str, str], list[str], list[str]]:
    """The model, its options, the reasons, and other models."""
    if all(one.kind == "binary" for one in shapes):
        if len(shapes) > 1:
            return "vrnn", {}, ["The values are zeros and ones."], ["srnn", "deep"]
        return "hmm", {"emission": "categorical"}, ["The values are zeros and ones."], ["poisson-counts"]
    counts = all(one.kind in ("counts", "binary") and one.mean < _LARGE for one in shapes)
    if counts and (len(shapes) > 1 or uneven or not (shapes[0].periods or shapes[0].trend)):
        names = ["poisson-counts", "negative-binomial-counts"]
        scattered = any(one.overdispersed for one in shapes)
        reason = "The values are small counts" + (" that scatter more than Poisson's do." if scattered else ".")
        first, second = names[::-1] if scattered else names
        return first, {}, [reason], [second]
    if all(one.returns for one in shapes):
        tails = {"tails": "student"} if any(one.heavy_tails or one.outliers for one in shapes) else {}
        return "stochastic-volatility", tails, ["Values around zero whose spread comes in clusters."], ["local-level"]
    trend = any(one.trend for one in shapes)
    if len(shapes) > 1 or uneven:
        reasons = ["Times are uneven, which a structural model cannot read."] if uneven and len(shapes) == 1 else []
        if len(shapes) > 1:
            reasons = ["There are several columns; a structural model explains one (--columns)."]
            reasons += [
                f"{name}: {', '.join(one.texts())}." for name, one in zip(columns, shapes, strict=True) if one.texts()
            ]
        names = ["local-trend", "local-level"] if trend else ["local-level", "local-trend"]
        return names[0], {}, reasons, [names[1], "linear-gaussian", *(["deep"] if len(shapes) > 8 else [])]
    shape = shapes[0]
    if shape.regimes:
        return "hmm", {"states": "2"}, ["Values keep to one of two levels for a while."], ["switching", "structural"]
    return "structural", *_structural(shape, counts)


def _structural(shape: Shape, counts: bool) -> tuple[dict[str, str], list[str], list[str]]:
    """Options of a structural model, each with its reason."""
    options, reasons = {}, []
    if shape.trend:
        options["trend"], reasons = "local", [*reasons, "The level goes up or down for good (trend)."]
    if shape.periods:
        options["season"] = ",".join(f"{period:.10g}" for period in shape.periods)
        reasons.append(f"There is a season of {' and '.join(f'{period:.5g}' for period in shape.periods)} steps.")
    if shape.cycle is not None and not shape.periods:
        options["cycle"] = "smooth"
        reasons.append(f"There is a cycle of about {shape.cycle:.3g} steps.")
    if counts:
        options["emission"] = "negative-binomial" if shape.overdispersed else "poisson"
        reasons.append("The values are small counts.")
    elif shape.transform == "log":
        options["transform"], reasons = "log", [*reasons, "The spread grows with the level (log)."]
    if not counts and shape.outliers:
        options["emission"], reasons = "student", [*reasons, "Some values lie far from the rest (Student's t)."]
    elif not counts and shape.heavy_tails:
        reasons.append("Tails are heavy: compare with --set emission=student.")
    return options, reasons, ["local-trend" if shape.trend else "local-level", "linear-gaussian"]


def fill_auto(name: str, options: Mapping[str, Any], table: Table) -> tuple[dict[str, Any], str]:
    """Return the options of the model called `name` with what the data suggest in place of "auto", and a sentence.

    `season`, `transform`, `trend` and `cycle` of a structural model may be "auto"; what the data do not show is left
    out. The trend of a level that walks is "auto" unless it is given. Beside a damped cycle and without a trend the
    level is fixed, because a level that walks takes the cycle's place and is forecast worse.
    """
    asked = [one for one in ("season", "transform", "trend", "cycle") if str(options.get(one)) == "auto"]
    if name == "structural" and "trend" not in options and str(options.get("level", "walk")) == "walk":
        asked.append("trend")
    if not asked or len(table.columns) > 1:
        return dict(options), ""
    found = _structural(describe_shapes(table)[0], counts=False)[0]
    chosen = {one: found[one] for one in asked if one in found}
    rest = {one: value for one, value in options.items() if one not in asked}
    cycle, trend = ({**rest, **chosen}.get(one, "none") for one in ("cycle", "trend"))
    if name == "structural" and str(cycle) in ("damped", "smooth") and "level" not in rest and str(trend) == "none":
        chosen["level"] = "fixed"
    absent = [one for one in asked if one not in chosen and one in options]
    said = [f"{one}={value}" for one, value in chosen.items()] + [f"no {one}" for one in absent]
    return {**rest, **chosen}, f"The data suggest {', '.join(said)}." if said else ""


def _warnings(table: Table) -> list[str]:
    """Sentences about columns and series of different sizes."""
    values = [series.values() for series in table.series_list]
    sizes = np.array([_size(column) for column in np.concatenate(values).T])
    found = []
    if len(sizes) > 1 and (ratio := _ratio(sizes)) > _UNLIKE:
        large, small = table.columns[int(np.nanargmax(sizes))], table.columns[int(np.nanargmin(sizes))]
        found.append(
            f"Columns {large} and {small} seem to have different units: their spreads differ by a factor of "
            f"{ratio:.3g}. Give all a similar scale, or learn from each alone (--columns)."
        )
    for index, name in enumerate(table.columns):
        each = np.array([_size(one[:, index]) for one in values])
        if len(each) > 1 and (ratio := _ratio(each)) > _UNLIKE:
            large, small = table.names[int(np.nanargmax(each))], table.names[int(np.nanargmin(each))]
            positive = all(np.nanmin(one[:, index], initial=np.inf) > 0 for one in values)
            logs = (
                f"Take logarithms (structural, --columns {name} --set transform=log), divide" if positive else "Divide"
            )
            found.append(
                f"Series {large} and {small} seem to have different units in {name}: their spreads differ by a factor "
                f"of {ratio:.3g}, but all series share the parameters of one model. {logs} each by its spread, or "
                "learn from each alone."
            )
    return found


def _size(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.std()) if len(known) > 2 and known.std() > 0 else np.nan


def _ratio(sizes: np.ndarray) -> float:
    return 0.0 if np.isnan(sizes).all() else float(np.nanmax(sizes) / np.nanmin(sizes))
