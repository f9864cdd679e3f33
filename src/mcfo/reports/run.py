"""The page about a run of `mcfo fit`: how it ended, what was learned, how it went, how to make it again."""

from __future__ import annotations

from pathlib import Path, PurePath

from mcfo.errors import InputError
from mcfo.files import nested
from mcfo.reports.cautions import cautions
from mcfo.reports.checks import add_checks
from mcfo.reports.curves import WIDTH, draw_curves
from mcfo.reports.folder import Run, SeedResult, number, read_run, text, whole
from mcfo.reports.origin import add_origin, data_in_words
from mcfo.reports.page import Report
from mcfo.reports.parameters import add_parameters, count_learned
from mcfo.reports.words import MISSING, counted, duration, fixed, shortened

_SELECTED = {
    "average": "averaged over the last steps",
    "best": "those with the lowest NLL on the validation data",
    "last": "those of the last step",
}


def write_run_report(folder: Path) -> Path:
    """Makes `figures/*.png` and `report.html` in a run folder from its files, and returns the page's path."""
    run = read_run(folder)
    path = folder / "report.html"
    try:
        figures = folder / "figures"
        figures.mkdir(exist_ok=True)
        _page(run, figures).write(path)
    except OSError as error:
        raise InputError(
            f"Cannot write {error.filename or path}: {error.strerror}. Make room, change the permissions, or copy the "
            "run to a folder that can be written."
        ) from error
    return path


def _page(run: Run, figures: Path) -> Report:
    command = text(run.config.get("command"))
    report = Report(_title(run), summary=_summary(run), command=shortened(command, 500) if command else None)
    for caution in cautions(run):
        report.warning(caution)
    if run.results:
        report.heading("Results")
        _result_table(report, run)
        add_parameters(report, run)
        add_checks(report, run.folder, figures)
    elif run.lines:
        report.heading("Where it stands")
        _progress_table(report, run)
    report.heading("How it went")
    pictures = draw_curves(figures, run)
    if pictures:
        report.text(_curves_in_words(run))
    else:
        report.text("There is nothing to draw: metrics.jsonl holds no numbers yet.")
    for picture in pictures:
        report.figure(picture.path, picture.caption, alt=picture.alt, width=WIDTH)
    add_origin(report, run)
    return report


def _title(run: Run) -> str:
    file = text(nested(run.config, "data", "file"))
    source = f" from {shortened(PurePath(file).name or file, 80)}" if file else ""
    return f"Learning {_model(run)}{source}"


def _model(run: Run) -> str:
    name = text(nested(run.config, "model", "name")) or text(nested(run.config, "model", "class"))
    return shortened(name or "a model without a name", 80)


def _summary(run: Run) -> str:
    proposal = text(nested(run.config, "proposal", "class"))
    with_proposal = f" with the proposal {shortened(proposal, 80)}" if proposal else ""
    sentences = [
        f"The model {_model(run)}{with_proposal} {'is being' if run.ended is None else 'was'} learned from "
        f"{data_in_words(run.config['data'])}{_sizes(run)}.",
        _end(run),
    ]
    if run.results:
        sentences += [_likelihood(run), _sample_size(run)]
    return " ".join(sentence for sentence in sentences if sentence)


def _sizes(run: Run) -> str:
    """How many numbers were learned."""
    counts = {what: count_learned(run.config, what) for what in ("model", "proposal")}
    parts = [f"{counted(count, 'number')} of the {what}" for what, count in counts.items() if count]
    return f": {' and '.join(parts)}" if parts else ""


def _end(run: Run) -> str:
    seeds = counted(len(run.results) or len(run.lines), "seed")
    of = "" if run.planned is None else f" of {run.planned}"
    if run.ended is None:
        spent = max((run.last(seed, "seconds") or 0.0 for seed in run.lines), default=0.0)
        return f"So far it took {run.step}{of} steps ({seeds}), in {duration(spent)}." if run.lines else ""
    seconds = number(run.ended.get("seconds"))
    took = "" if seconds is None else f", in {duration(seconds)}"
    if run.ended.get("stopped") == "early":
        return f"It stopped early, at step {run.step}{of} ({seeds}){took}, because the validation data gained no more."
    return f"It took all {counted(run.step, 'step')} ({seeds}){took}."


def _best(results: list[SeedResult]) -> SeedResult | None:
    """The seed with the lowest NLL."""
    found = [(value, result) for result in results if (value := result.value("nll_per_step")) is not None]
    return min(found, key=lambda pair: pair[0])[1] if found else None


def _likelihood(run: Run) -> str:
    best = _best(run.results)
    if best is None:
        return f"There is no finite NLL on the {_evaluated_on(run)}."
    values = [value for result in run.results if (value := result.value("nll_per_step")) is not None]
    several = len(run.results) > 1
    named = f" of the best seed ({best.seed})" if several else ""
    exact = best.value("exact_nll_per_step")
    beside = "" if exact is None else f", where the exact value for its parameters is {fixed(exact, 4)}"
    spread = f" Over the seeds it goes from {fixed(min(values), 4)} to {fixed(max(values), 4)}." if several else ""
    value = fixed(best.value("nll_per_step"), 4)
    return f"On the {_evaluated_on(run)} the NLL per step{named} is {value} nats{beside}.{spread}"


def _sample_size(run: Run) -> str:
    best = _best(run.results) or run.results[0]
    size, particles = best.value("ess"), whole(best.value("particles"))
    if size is None or particles is None:
        return ""
    lowest = best.value("ess_min")
    least = "" if lowest is None else f", and {fixed(lowest, 1)} where it is lowest"
    return f"The mean effective sample size is {fixed(size, 1)} of {particles} particles{least}."


def _evaluated_on(run: Run) -> str:
    return "validation data" if nested(run.ended, "evaluated_on") == "validation" else "learning data"


def _result_table(report: Report, run: Run) -> None:
    columns = {
        "NLL per step": ("nll_per_step", 4),
        "exact NLL": ("exact_nll_per_step", 4),
        "log evidence": ("log_evidence", 1),
        "ESS": ("ess", 1),
        "lowest ESS": ("ess_min", 1),
        "RMSE": ("prediction_rmse", 4),
        "collapsed": ("collapsed", 0),
    }
    present = {
        title: column
        for title, column in columns.items()
        if any(result.value(column[0]) is not None for result in run.results)
    }
    stepped = any(result.best_step is not None for result in run.results)
    best = _best(run.results) if len(run.results) > 1 else None
    rows, marked = [], set()
    for place, result in enumerate(run.results):
        step = [MISSING if result.best_step is None else str(result.best_step)] if stepped else []
        numbers = [fixed(result.value(name), decimals) for name, decimals in present.values()]
        rows.append([str(result.seed), *numbers, str(result.skipped), *step])
        if result is best:
            marked = {(place, column) for column in range(len(rows[-1]))}
    selected = _SELECTED.get(str(nested(run.ended, "selected")), "as the run ended")
    bold = " Bold: the lowest NLL." if best else ""
    predicted = " RMSE: of the prediction one step ahead." if "RMSE" in present else ""
    report.table(
        ["seed", *present, "skipped", *(["best step"] if stepped else [])],
        rows,
        caption=f"Evaluation on the {_evaluated_on(run)}{_evaluation_size(run)}. Parameters: {selected}. Likelihoods "
        f"in nats; ESS: effective sample size, mean over the steps.{predicted} Skipped: updates not made.{bold}",
        marked=marked,
    )


def _evaluation_size(run: Run) -> str:
    """How many series and particles, where all seeds agree."""
    sizes = {name: {whole(result.value(name)) for result in run.results} for name in ("series", "particles")}
    parts = [f"{found.pop()} {name}" for name, found in sizes.items() if len(found) == 1 and None not in found]
    return f" ({' and '.join(parts)})" if parts else ""


def _progress_table(report: Report, run: Run) -> None:
    columns = {
        "bound per step": ("log_evidence_per_step", 4),
        "validation NLL per step": ("validation_nll_per_step", 4),
        "ESS": ("ess", 1),
        "skipped": ("skipped", 0),
        "seconds": ("seconds", 1),
    }
    present = {title: column for title, column in columns.items() if run.curve(column[0])}
    rows = [
        [
            str(seed),
            str(lines[-1]["step"]),
            *(fixed(run.last(seed, name), decimals) for name, decimals in present.values()),
        ]
        for seed, lines in run.lines.items()
    ]
    of = "" if run.particles is None else f" (K = {run.particles})"
    report.table(["seed", "step", *present], rows, caption=f"The last value of each metric{of}. Likelihoods in nats.")


def _curves_in_words(run: Run) -> str:
    lines = "Each point is the mean over the steps since the one before."
    if len(run.lines) > 1:
        return f"Thin lines are single seeds, the bold line is their mean. {lines}"
    return lines
