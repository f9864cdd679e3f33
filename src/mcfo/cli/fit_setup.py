"""What `mcfo fit` starts from: the data, the initial model and the objective."""

import inspect
from pathlib import Path
from typing import Any

from mcfo.cli.options import fail
from mcfo.errors import InputError, nearest


def read_data(
    data: Path,
    validation: Path | None,
    holdout: float,
    columns: dict[str, Any],
    irregular: str,
    calendar: str | None,
    model: str | None,
) -> tuple[Any, list | None]:
    """The table to learn from, and the series that are held out; `model` is one of the catalogue."""
    from mcfo.catalogue.registry import entry
    from mcfo.data.column_layout import DefaultColumns
    from mcfo.data.run_columns import timed
    from mcfo.data.tables import read_series

    able = model is not None and entry(model).gaps
    table, note = timed(read_series(data, **columns), irregular, model or "a model of your own", able=able)
    if calendar is not None:
        table = table.with_calendar(calendar)
    for one in (*table.notes, *([note] if note else [])):
        print(one)
    series_list = table.series_list
    if validation is not None:
        if holdout:
            fail("--holdout and --validation both name held-out series. Give one of them.")
        held_out = read_series(validation, **columns, defaults=DefaultColumns(table.columns))
        held_out = held_out if irregular == "rows" or table.unit is not None else held_out.on_grid()
        held_out = held_out if table.calendar is None else held_out.with_calendar(table.calendar)
        return table, (held_out if table.unit is None else held_out.with_gaps(table.unit)).series_list
    if not holdout:
        return table, None
    count = round(len(series_list) * holdout)
    if count < 1 or count >= len(series_list):
        fail(
            f"--holdout {holdout} of {len(series_list)} series leaves none to learn from or none to hold out. Give "
            "more series, another share, or a file with --validation."
        )
    return table._replace(series_list=series_list[:-count]), series_list[-count:]


def with_suggestions(name: str, options: dict[str, str], table: Any) -> dict[str, str]:
    """The options of the model of this name, with what the data suggest in place of auto."""
    from mcfo.data.series_shape import fill_auto

    filled, note = fill_auto(name, options, table)
    if note:
        print(note)
    return filled


def without_last(table: Any, steps: int) -> Any:
    """The table without the last steps of every series."""
    if not steps:
        return table
    short = min(len(series.values()) for series in table.series_list)
    if short < steps + 2:
        fail(
            f"--holdout-steps {steps} leaves fewer than two steps to learn from: the shortest series has {short}. Hold "
            "out fewer."
        )
    cut = [series.window(0, series.steps - steps) for series in table.series_list]
    return table._replace(series_list=cut, times=None if table.times is None else [one[:-steps] for one in table.times])


def initial(
    model: str, proposal: str | None, own: bool, options: dict[str, str], table: Any, asked: tuple[Any, ...]
) -> tuple[Any, Any]:
    """The initial model, and the objective: None for the exact likelihood, which is the default where it is known."""
    import jax

    from mcfo.exact import is_exact
    from mcfo.precision import widened

    name, particles, rules, more = asked
    if name is None and (particles is not None or more):
        name = "mcfo"
    if name not in (None, "exact"):
        chosen = _build_objective(name, particles or 100, rules, more)
        start = build_start(model, proposal, own, options, table, bootstrap=chosen.prior_proposal)
        if "phi" in more and "proposal" in start.fixed:
            raise InputError(
                f"The proposal of {model} is the optimal one and does not learn, so that a rule for phi has no use. "
                "Leave out --phi, or give a proposal of your own: --proposal path/to/file.py:Name."
            )
        return start, chosen
    # In float64: what is fixed is not rounded in an exact fit.
    with jax.enable_x64(True):
        start = widened(build_start(model, proposal, own, options, table, bootstrap=False))
    if is_exact(start.model):
        if more or particles is not None:
            raise InputError(
                "--particles, --theta, --phi and --objective-option are about objectives by particles. Leave them out, "
                "or name one: --objective mcfo."
            )
        return start, None
    if name == "exact":
        raise InputError(
            f"The likelihood of {model} is not known exactly. Leave out --objective, or estimate it by "
            "particles: --objective mcfo."
        )
    chosen = _build_objective("mcfo", 100, rules, more)
    return build_start(model, proposal, own, options, table, bootstrap=chosen.prior_proposal), chosen


def defaults(model: str, own: bool) -> tuple[dict[str, str], str]:
    """The gradient rules and the rates of a model unless others are chosen."""
    from mcfo.catalogue.registry import LIKELIHOOD, entry

    if own:
        return dict(LIKELIHOOD), "equal"
    return dict(entry(model).rules), entry(model).rates


def build_start(
    model: str, proposal: str | None, own: bool, options: dict[str, str], table: Any, *, bootstrap: bool
) -> Any:
    """Model, proposal and what is fixed by default; with `bootstrap`, the prior as proposal unless one is given."""
    from mcfo.catalogue.from_data import require_steps
    from mcfo.catalogue.registry import build
    from mcfo.catalogue.user_code import build_own, build_own_proposal
    from mcfo.proposals.base import Bootstrap

    series_list = table.series_list
    require_steps(series_list)
    if own:
        start = build_own(model, series_list, proposal)
    else:
        start = build(model, series_list, options, gaps=table.unit is not None)
    if proposal is not None and not own:
        start = start._replace(proposal=build_own_proposal(proposal, series_list))
    elif bootstrap and proposal is None:
        start = start._replace(proposal=Bootstrap())
    elif proposal is None:
        return start
    return start._replace(fixed=tuple(path for path in start.fixed if path.startswith("model")))


def _build_objective(name: str, particles: int, rules: dict[str, str], options: dict[str, Any]) -> Any:
    """The objective of this name; `particles` if it needs a number of them, `rules` where it leaves the choice and
    `options` do not choose."""
    from mcfo.catalogue.user_code import is_own
    from mcfo.objectives.named import OBJECTIVES, by_name, needs_particles

    if name not in OBJECTIVES:
        raise InputError(f"There is no objective {name!r}. {nearest(name, [*OBJECTIVES, 'exact'])}")
    takes = inspect.signature(OBJECTIVES[name]).parameters
    options = {side: _own_rule(value, side) if is_own(value) else value for side, value in options.items()}
    known: dict[str, Any] = {side: rule for side, rule in rules.items() if side in takes}
    if needs_particles(name):
        known["particles"] = particles
    try:
        return by_name(name, **known | options)
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error


def _own_rule(reference: str, side: str) -> Any:
    """A gradient rule of the user's own, for theta or for phi."""
    from mcfo.catalogue.user_code import build_own_instance
    from mcfo.gradients.rules import Rule

    rule = build_own_instance(reference, Rule, "mcfo.rules.StepRule or mcfo.rules.PathRule")
    if side not in rule.learns:
        raise InputError(
            f"{reference} learns {' and '.join(rule.learns)}, so that it cannot be the rule for {side}. Name it with "
            f"--{rule.learns[0]}, or add {side!r} to its `learns`."
        )
    return rule


def described(reference: str, own: bool) -> dict[str, Any]:
    """A model, a proposal or a rule in config.json; one of the user's own with a hash of the code."""
    if not own:
        return {"name": reference, "own": False}
    from mcfo.catalogue.trust import digest, trust

    trust(reference)
    file, _, name = reference.rpartition(":")
    path = Path(file).resolve()
    return {"name": f"{path.name}:{name}", "own": True, "path": str(path), "sha256": digest(path)}
