"""What `mcfo fit` is asked for, as what it needs: series, a model and its proposal, an objective."""

import hashlib
import inspect
from pathlib import Path
from typing import Any

from mcfo.cli.common import as_value
from mcfo.errors import InputError


def read_data(
    data: Path,
    validation: Path | None,
    holdout: float,
    columns: dict[str, Any],
    irregular: str,
    model: str | None,
) -> tuple[Any, list | None]:
    """The series to learn from, as a table, and those that are held out; `model` is one of the catalogue."""
    from mcfo.catalogue.registry import entry
    from mcfo.data.column_layout import DefaultColumns
    from mcfo.data.run_columns import timed
    from mcfo.data.tables import read_series

    able = model is not None and entry(model).gaps
    table, note = timed(read_series(data, **columns), irregular, model or "a model of your own", able=able)
    if note:
        print(note)
    series_list = table.series_list
    if validation is not None:
        if holdout:
            raise InputError("--holdout and --validation both name held-out series. Give one of them.")
        held_out = read_series(validation, **columns, defaults=DefaultColumns(table.columns))
        return table, (held_out if table.unit is None else held_out.with_gaps(table.unit)).series_list
    if not holdout:
        return table, None
    count = round(len(series_list) * holdout)
    if count < 1 or count >= len(series_list):
        raise InputError(
            f"--holdout {holdout} of {len(series_list)} series leaves none to learn from or none to hold out. Give "
            "more series, another share, or a file by --validation."
        )
    return table._replace(series_list=series_list[:-count]), series_list[-count:]


def make_start(
    model: str,
    proposal: str | None,
    own: bool,
    options: dict[str, str],
    series_list: list,
    gaps: bool,
    *,
    bootstrap: bool,
) -> Any:
    """Model, proposal and what is fixed by default."""
    from mcfo.catalogue.from_data import require_steps
    from mcfo.catalogue.registry import build
    from mcfo.catalogue.user_code import build_own, build_own_proposal
    from mcfo.proposals.base import Bootstrap

    require_steps(series_list)
    start = build_own(model, series_list, proposal) if own else build(model, series_list, options, gaps=gaps)
    if not own and proposal is not None:
        start = start._replace(proposal=build_own_proposal(proposal, series_list))
    elif bootstrap and proposal is None:
        start = start._replace(proposal=Bootstrap())
    elif proposal is None:
        return start
    return start._replace(fixed=tuple(path for path in start.fixed if path.startswith("model")))


def usual_rules(model: str, own: bool, window: int | None) -> dict[str, str]:
    """By which gradients a model is learned, unless one says otherwise."""
    from mcfo.catalogue.registry import LIKELIHOOD, entry

    rules = LIKELIHOOD if own else entry(model).rules
    # A rule over whole paths cannot be cut into windows.
    return {side: rule for side, rule in rules.items() if side == "phi" or window is None}


def usual_rates(model: str, own: bool) -> str:
    """Which rates a model is learned with, unless one says otherwise."""
    from mcfo.catalogue.registry import entry

    return "equal" if own else entry(model).rates


def make_objective(name: str, particles: int, rules: dict[str, str], options: dict[str, str]) -> Any:
    """The objective of this name; `rules` as far as it leaves the choice and `options` do not choose."""
    from mcfo.objectives.named import OBJECTIVES, by_name, needs_particles

    known: dict[str, Any] = {}
    if name in OBJECTIVES:
        known |= {"particles": particles} if needs_particles(name) else {}
        takes = inspect.signature(OBJECTIVES[name]).parameters
        known |= {side: rule for side, rule in rules.items() if side in takes}
    try:
        return by_name(name, **known | {option: as_value(value) for option, value in options.items()})
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error


def described(reference: str, own: bool) -> dict[str, Any]:
    """What config.json says of a model or a proposal; of one's own, a hash of the code too."""
    if not own:
        return {"name": reference, "own": False}
    file, _, name = reference.rpartition(":")
    code = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return {"name": f"{Path(file).name}:{name}", "own": True, "sha256": code}
