"""What was run, and how to run it again."""

from __future__ import annotations

from typing import Any

from mcfo.files import nested
from mcfo.reports.folder import Run, text, whole
from mcfo.reports.page import Report
from mcfo.reports.parameters import is_fixed
from mcfo.reports.words import (
    MISSING,
    counted,
    listed,
    objective_in_words,
    settings_in_words,
    shape_in_words,
    shortened,
)


def data_in_words(data: Any) -> str:
    """40 series with 4000 steps in all and 1 dimension (series.csv)."""
    series, steps, dimensions = (whole(nested(data, name)) for name in ("series", "steps", "dimensions"))
    file = text(nested(data, "file"))
    words = "data" if series is None else counted(series, "series", "series")
    parts = [] if steps is None else [f"{counted(steps, 'step')}{' in all' if series != 1 else ''}"]
    parts += [] if dimensions is None else [counted(dimensions, "dimension")]
    return words + (f" with {listed(parts)}" if parts else "") + (f" ({shortened(file)})" if file else "")


def add_origin(report: Report, run: Run) -> None:
    """The last sections: settings, data, objective, versions, and the command."""
    report.heading("What was run")
    report.text(objective_in_words(run.config["objective"]))
    report.text(_machine(run))
    _modules(report, run)
    _data(report, run)
    pairs = settings_in_words(run.config["settings"])
    pairs += settings_in_words(nested(run.config, "model", "options") or {}, "model")
    if pairs:
        report.table(["setting", "value"], [list(pair) for pair in pairs], caption="Settings of the run.", words={1})
    report.heading("How to reproduce it")
    _reproduction(report, run)


def _machine(run: Run) -> str:
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


def _modules(report: Report, run: Run) -> None:
    rows = []
    for module in ("model", "proposal"):
        shapes = nested(run.config, module, "parameters")
        for name, shape in shapes.items() if isinstance(shapes, dict) else ():
            held = "fixed" if is_fixed(run.config, name) else "learned"
            rows.append([shortened(name, 60), shape_in_words(shape), held])
    classes = [
        f"{module} {shortened(found, 80)}"
        for module in ("model", "proposal")
        if (found := text(nested(run.config, module, "class")))
    ]
    if rows:
        report.table(
            ["parameter", "shape", "in this run"], rows, caption=f"Parameters of {listed(classes)}.", words={1}
        )


def _data(report: Report, run: Run) -> None:
    rows = []
    for use, name in (("learning", "data"), ("validation", "validation")):
        data = run.config.get(name)
        if isinstance(data, dict):
            counts = [whole(data.get(key)) for key in ("series", "steps", "dimensions")]
            digest = text(data.get("sha256"))
            rows.append(
                [
                    use,
                    shortened(text(data.get("file")) or "from Python", 80),
                    *(MISSING if count is None else str(count) for count in counts),
                    digest[:12] if digest else MISSING,
                ]
            )
    report.table(
        ["data", "file", "series", "steps", "dimensions", "SHA-256"],
        rows,
        caption="The data: steps over all series; the SHA-256 begins with these digits and is in full in config.json.",
        words={1, 5},
    )


def _reproduction(report: Report, run: Run) -> None:
    version = text(nested(run.config, "versions", "mcfo"))
    with_version = f" with mcfo {shortened(version, 40)}" if version else ""
    command = text(run.config.get("command"))
    if command:
        report.text(f"In a folder with the same data{with_version}:")
        report.code(shortened(command, 2000))
    else:
        model = text(nested(run.config, "model", "class")) or "the model"
        report.text(
            f"The run was started from Python. Call mcfo.fit{with_version} with {shortened(model, 80)}, its proposal, "
            "the objective, the data (the SHA-256 says whether they are the same) and the settings above as keyword "
            "arguments."
        )
    report.text(
        "The seeds decide all random numbers; other versions or another number of devices may round differently. What "
        "determines the run is in config.json, how it went in metrics.jsonl, how it ended in results.json."
    )
