"""The page about a run of `mcfo fit`: the answer first, then the figures, then how it was run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePath

from mcfo.data.outlook import FILE, Outlook, read_outlook
from mcfo.data.run_record import RunRecord, number, read_run, text, whole
from mcfo.errors import InputError
from mcfo.files import nested
from mcfo.reports.figures import PIXELS
from mcfo.reports.formatting import (
    MISSING,
    counted,
    data_text,
    duration,
    fixed,
    listed,
    objective_text,
    setting_texts,
    shape_text,
    shortened,
)
from mcfo.reports.holdout_scores import add_holdout_scores
from mcfo.reports.html import Report
from mcfo.reports.model_page import add_outlook
from mcfo.reports.parameters import add_other_arrays, add_parameters, count_learned, is_fixed, model_rows
from mcfo.reports.predictive import (
    Checks,
    add_check_figures,
    add_forecasts,
    check_concerns,
    forecast_summary,
    read_checks,
)
from mcfo.reports.training_curves import draw_curves
from mcfo.reports.warnings import run_warnings

_SELECTED = {
    "average": "averaged over the last steps",
    "maximum": "those of the highest likelihood",
    "best": "those with the lowest NLL on the validation data",
    "last": "those of the last step",
}
_FEW = 4
"""Parameters that the summary can name."""
_RESULTS = {
    "NLL per step": ("nll_per_step", 4), "exact NLL": ("exact_nll_per_step", 4), "log evidence": ("log_evidence", 1),
    "ESS": ("ess", 1), "lowest ESS": ("ess_min", 1), "RMSE": ("prediction_rmse", 4), "collapsed": ("collapsed", 0),
}  # fmt: skip
_PROGRESS = {
    "bound per step": ("log_evidence_per_step", 4), "validation NLL per step": ("validation_nll_per_step", 4),
    "ESS": ("ess", 1), "skipped": ("skipped", 0), "seconds": ("seconds", 1),
}  # fmt: skip
"""Columns of the tables of results and of where a run stands: the name of a number, and its decimals."""


def write_run_report(folder: Path) -> Path:
    """Writes `figures/*.png` and `report.html` into a run folder from its files, and returns the page's path."""
    run = read_run(folder)
    checks = read_checks(folder) if run.results else None
    outlook = read_outlook(folder / FILE) if run.results else None
    path = folder / "report.html"
    try:
        figures = folder / "figures"
        figures.mkdir(exist_ok=True)
        _page(run, checks, outlook, figures).write(path)
    except OSError as error:
        raise InputError(
            f"Cannot write {error.filename or path}: {error.strerror}. Make room, change the permissions, or copy the "
            "run to a folder that can be written."
        ) from error
    return path


def _page(run: RunRecord, checks: Checks | None, outlook: Outlook | None, figures: Path) -> Report:
    warnings = run_warnings(run) + ([] if checks is None else check_concerns(checks))
    report = Report(_title(run), summary=_answer(run, checks, len(warnings)), command=None)
    if outlook is not None:
        add_outlook(report, outlook, figures)
    if run.results:
        report.heading("What was learned")
        add_parameters(report, run)
        report.heading("How good the forecasts are")
        if checks is not None:
            add_forecasts(report, checks, text(nested(run.config, "data", "sha256")))
        add_holdout_scores(report, run)
        _add_results(report, run)
    elif run.lines:
        report.heading("Where it stands")
        _add_progress(report, run)
    report.heading("What to worry about")
    for warning in warnings:
        report.warning(warning)
    if not warnings:
        forecasts = "" if checks is None else "; the intervals hold what they promise, and the errors have no structure"
        exact = nested(run.ended, "exact") is True
        learning = "the search converged" if exact else "no filter collapsed, no update was skipped, the ESS is sound"
        report.text(f"Nothing stands out: {learning}{forecasts}.")
    if run.results and checks is None:
        report.text("The forecasts were not checked: mcfo report RUN --data FILE does so.")
    if checks is not None:
        add_check_figures(report, checks, figures)
    report.heading("How learning went")
    drawn = draw_curves(figures, run)
    if drawn:
        several = "Thin lines are single seeds, the bold line is their mean. " if len(run.lines) > 1 else ""
        report.text(f"{several}Each point is the mean over the steps since the one before.")
    else:
        report.text("There is nothing to draw: metrics.jsonl holds no numbers yet.")
    for figure in drawn:
        report.figure(figure.path, figure.caption, width=PIXELS)
    _add_origin(report, run)
    return report


def _title(run: RunRecord) -> str:
    file = text(nested(run.config, "data", "file"))
    source = f" from {shortened(PurePath(file).name or file, 80)}" if file else ""
    return f"{_model(run)}, learned{source}"


def _model(run: RunRecord) -> str:
    name = text(nested(run.config, "model", "name")) or text(nested(run.config, "model", "class"))
    return shortened(name or "a model without a name", 80)


def _answer(run: RunRecord, checks: Checks | None, warnings: int) -> str:
    sentences = []
    if run.ended is None:
        sentences.append(_end(run))
    sentences.append(_learned(run))
    if checks is not None:
        sentences.append(forecast_summary(checks))
    if run.results:
        sentences += [_likelihood(run), _sample_size(run)]
    if warnings:
        which = "it" if warnings == 1 else "them"
        sentences.append(f"{counted(warnings, 'warning')} below: read {which} before you use these numbers.")
    return " ".join(sentence for sentence in sentences if sentence)


def _learned(run: RunRecord) -> str:
    """The parameters of a model that has few."""
    _, rows = model_rows(run)
    shown = [f"{row[0]} {' ± '.join(row[1:3])}" for row in rows]
    over = ", mean ± spread over the seeds" if len(run.results) > 1 else ""
    return f"Learned{over}: {listed(shown)}." if 0 < len(shown) <= _FEW else ""


def _end(run: RunRecord) -> str:
    seeds = counted(len(run.results) or len(run.lines), "seed")
    of = "" if run.planned is None else f" of {run.planned}"
    if run.ended is None:
        spent = max((run.last(seed, "seconds") or 0.0 for seed in run.lines), default=0.0)
        return f"So far it took {run.step}{of} steps ({seeds}), in {duration(spent)}." if run.lines else ""
    seconds = number(run.ended.get("seconds"))
    took = "" if seconds is None else f", in {duration(seconds)}"
    if run.ended.get("stopped") == "early":
        return f"It stopped early, at step {run.step}{of} ({seeds}){took}, because the validation NLL fell no more."
    if run.ended.get("stopped") == "converged":
        return f"It converged after {counted(run.step, 'step')} ({seeds}){took}."
    return f"It took all {counted(run.step, 'step')} ({seeds}){took}."


def _likelihood(run: RunRecord) -> str:
    best = run.best
    if best is None:
        return f"There is no finite NLL on the {_evaluated_on(run)}."
    values = [value for result in run.results if (value := result.value("nll_per_step")) is not None]
    several = len(run.results) > 1
    named = f" of the best seed ({best.seed})" if several else ""
    exact = best.value("exact_nll_per_step")
    if best.evaluation.get("exact") is True:
        exact, named = None, f"{named}, which is exact,"
    beside = "" if exact is None else f", where the exact value for its parameters is {fixed(exact, 4)}"
    spread = f" Over the seeds it goes from {fixed(min(values), 4)} to {fixed(max(values), 4)}." if several else ""
    value = fixed(best.value("nll_per_step"), 4)
    return f"On the {_evaluated_on(run)} the NLL per step{named} is {value} nats{beside}.{spread}"


def _sample_size(run: RunRecord) -> str:
    best = run.best or run.results[0]
    size, particles = best.value("ess"), whole(best.value("particles"))
    if size is None or particles is None:
        return ""
    lowest = best.value("ess_min")
    least = "" if lowest is None else f", and {fixed(lowest, 1)} where it is lowest"
    return f"The mean effective sample size is {fixed(size, 1)} of {particles} particles{least}."


def _evaluated_on(run: RunRecord) -> str:
    return "validation data" if nested(run.ended, "evaluated_on") == "validation" else "learning data"


def _add_results(report: Report, run: RunRecord) -> None:
    stepped = any(result.best_step is not None for result in run.results)
    best = run.best if len(run.results) > 1 else None
    header, rows = _numbers(_RESULTS, [result.value for result in run.results])
    for row, result in zip(rows, run.results, strict=True):
        step = [MISSING if result.best_step is None else str(result.best_step)] if stepped else []
        row[:] = [str(result.seed), *row, str(result.skipped), *step]
    marked = {(run.results.index(best), column) for column in range(len(rows[0]))} if best else set()
    selected = _SELECTED.get(str(nested(run.ended, "selected")), "those at the end of the run")
    bold = " Bold: the lowest NLL." if best else ""
    predicted = " RMSE: of the forecast one step ahead, over all columns." if "RMSE" in header else ""
    report.table(
        ["seed", *header, "skipped", *(["best step"] if stepped else [])],
        rows,
        caption=f"Evaluation on the {_evaluated_on(run)}{_evaluation_size(run)}. Parameters: {selected}. Likelihoods "
        f"in nats; ESS: effective sample size, mean over the steps.{predicted} Skipped: updates not made.{bold}",
        marked=marked,
    )


def _numbers(
    columns: dict[str, tuple[str, int]], values: list[Callable[[str], float | None]]
) -> tuple[list[str], list[list[str]]]:
    """Titles of the columns that hold a number anywhere, and the rows; a column is a name and its decimals."""
    present = {
        title: column for title, column in columns.items() if any(value(column[0]) is not None for value in values)
    }
    rows = [[fixed(value(name), decimals) for name, decimals in present.values()] for value in values]
    return list(present), rows


def _evaluation_size(run: RunRecord) -> str:
    """The numbers of series and particles, where all seeds agree."""
    sizes = {name: {whole(result.value(name)) for result in run.results} for name in ("series", "particles")}
    parts = [f"{values.pop()} {name}" for name, values in sizes.items() if len(values) == 1 and None not in values]
    return f" ({' and '.join(parts)})" if parts else ""


def _add_progress(report: Report, run: RunRecord) -> None:
    header, rows = _numbers(_PROGRESS, [partial(run.last, seed) for seed in run.lines])
    for row, (seed, lines) in zip(rows, run.lines.items(), strict=True):
        row[:] = [str(seed), str(lines[-1]["step"]), *row]
    of = "" if run.particles is None else f" (K = {run.particles})"
    report.table(["seed", "step", *header], rows, caption=f"The last value of each metric{of}. Likelihoods in nats.")


def _add_origin(report: Report, run: RunRecord) -> None:
    """The last section: data, objective, machine, the command, and all settings and arrays folded away."""
    report.heading("How it was run")
    proposal = text(nested(run.config, "proposal", "class"))
    with_proposal = f" with the proposal {shortened(proposal, 80)}" if proposal else ""
    counts = {what: count_learned(run.config, what) for what in ("model", "proposal")}
    sizes = [f"{counted(count, 'number')} of the {what}" for what, count in counts.items() if count]
    report.text(
        f"The model {_model(run)}{with_proposal} {'is being' if run.ended is None else 'was'} learned from "
        f"{data_text(run.config['data'])}{': ' + ' and '.join(sizes) if sizes else ''}. {_end(run)}"
    )
    report.text(objective_text(run.config["objective"]))
    report.text(_machine(run))
    _add_command(report, run)
    _add_data(report, run)
    pairs = setting_texts(run.config["settings"])
    pairs += setting_texts(nested(run.config, "model", "options") or {}, "model")
    if pairs:
        with report.details("All settings"):
            rows = [list(pair) for pair in pairs]
            report.table(["setting", "value"], rows, caption="Settings of the run.", words={0, 1})
    with report.details("All parameters"):
        _add_shapes(report, run)
        if run.results:
            add_other_arrays(report, run)


def _machine(run: RunRecord) -> str:
    devices, precision = whole(run.config.get("devices")), text(run.config.get("precision"))
    on = "" if devices is None else f" on {counted(devices, 'device')}"
    numbers = f" in {shortened(precision, 40)}" if precision else ""
    versions = nested(run.config, "versions")
    named = (
        [f"{shortened(str(name), 40)} {shortened(str(version), 40)}" for name, version in versions.items()]
        if isinstance(versions, dict)
        else []
    )
    return f"Computed{numbers}{on}. Versions: {listed(named[:20]) if named else 'not recorded'}."


def _add_shapes(report: Report, run: RunRecord) -> None:
    rows = []
    for module in ("model", "proposal"):
        shapes = nested(run.config, module, "parameters")
        for name, shape in shapes.items() if isinstance(shapes, dict) else ():
            held = "fixed" if is_fixed(run.config, name) else "learned"
            rows.append([shortened(name, 60), shape_text(shape), held])
    classes = [
        f"{module} {shortened(name, 80)}"
        for module in ("model", "proposal")
        if (name := text(nested(run.config, module, "class")))
    ]
    if rows:
        caption = f"Parameters of {listed(classes)} as they are stored."
        report.table(["parameter", "shape", "in this run"], rows, caption=caption, words={0, 1})


def _add_data(report: Report, run: RunRecord) -> None:
    rows = []
    for use, name in (("learning", "data"), ("validation", "validation")):
        data = run.config.get(name)
        if isinstance(data, dict):
            counts = [whole(data.get(key)) for key in ("series", "steps", "dimensions")]
            digest, file = text(data.get("sha256")), shortened(text(data.get("file")) or "from Python", 80)
            sizes = [MISSING if count is None else str(count) for count in counts]
            rows.append([use, file, *sizes, digest[:12] if digest else MISSING])
    report.table(
        ["data", "file", "series", "steps", "dimensions", "SHA-256"],
        rows,
        caption="The data: steps over all series; the first digits of the SHA-256, which is in config.json in full.",
        words={1, 5},
    )


def _add_command(report: Report, run: RunRecord) -> None:
    version = text(nested(run.config, "versions", "mcfo"))
    with_version = f" with mcfo {shortened(version, 40)}" if version else ""
    command = text(run.config.get("command"))
    if command:
        report.text(f"To run it again{with_version}, in a folder with the same data:")
        report.code(shortened(command, 2000))
    else:
        model = text(nested(run.config, "model", "class")) or "the model"
        report.text(
            f"The run was started from Python. Call mcfo.fit{with_version} with {shortened(model, 80)}, its proposal, "
            "the objective, the data (the SHA-256 says whether they are the same) and the settings below as keyword "
            "arguments."
        )
    report.text(
        "The seeds decide all random numbers; other versions or another number of devices may round differently. The "
        "configuration is in config.json, the course of learning in metrics.jsonl, the results in results.json."
    )
