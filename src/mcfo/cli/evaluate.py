"""`mcfo evaluate`: how well a learned model explains the series in a file, and how well it forecasts them."""

import json
from pathlib import Path
from typing import Annotated, Any

from mcfo.cli import options as opt
from mcfo.cli.apply import Applied, open_run, over_posterior
from mcfo.cli.options import (
    build_table,
    check_new_file,
    exists,
    fail,
    messages,
    refusing,
    status,
    table_columns,
    writing,
    written,
)
from mcfo.errors import InputError
from mcfo.files import nested

_forecasts = opt.panel("Forecasts, with --rolling")


def evaluate(
    run: opt.RunFolder,
    data: opt.Data,
    rolling: Annotated[
        bool, opt.main("Forecast from one step after another, and score the forecasts.", "--rolling")
    ] = False,
    particles: opt.AskedParticles = None,
    method: opt.Method = None,
    seed: opt.Seed = 0,
    model: opt.OwnModel = None,
    proposal: opt.OwnProposal = None,
    trust_code: opt.TrustCode = False,
    columns: opt.Columns = None,
    series: opt.SeriesColumn = None,
    time: opt.TimeColumn = None,
    posterior: opt.PosteriorFile = None,
    as_json: Annotated[bool, opt.output("Print JSON instead of a table.", "--json")] = False,
    out: Annotated[Path | None, opt.output("Write the JSON into this file; it must not exist yet.")] = None,
    horizon: Annotated[int | None, _forecasts("Steps ahead, 1 by default.", min=1, max=100_000)] = None,
    first: Annotated[
        int | None, _forecasts("The first step that is forecast, counted from 1.", "--from", min=1)
    ] = None,
    origins: Annotated[
        int | None, _forecasts("Number of forecasts of each series, evenly spread; by default all.", min=1)
    ] = None,
    draws: Annotated[
        int | None, _forecasts("Draws of each forecast that is not exact, 1000 by default.", min=2, max=100_000)
    ] = None,
    season: Annotated[
        int | None,
        _forecasts(
            "Steps in a season, for the seasonal naive forecast; by default that of the model or the dates.", min=2
        ),
    ] = None,
    plot: Annotated[Path | None, _forecasts("Draw forecasts and calibration into this .png file.")] = None,
) -> None:
    """Measure how well a learned model explains and forecasts the series in a file.

    Log-likelihood, NLL per step, one-step prediction; with --rolling, log score, CRPS, coverage and calibration of its
    forecasts, beside naive ones. Exact where that is possible, by particles otherwise.
    """
    if out is not None and exists(out):
        fail(f"{out} exists already. Choose another file with --out.")
    exists(run)
    about_forecasts = {"--horizon": horizon, "--from": first, "--origins": origins, "--draws": draws}
    about_forecasts |= {"--season": season, "--plot": plot, "--posterior": posterior}
    for flag, value in about_forecasts.items():
        if value is not None and not rolling:
            fail(f"{flag} is about forecasts. Add --rolling, or leave it out.")
    check_new_file(plot, "--plot", (".png",))
    with messages():
        from mcfo.learning.saved_each import is_each

        if not rolling and is_each(run):
            raise InputError(f"{run} has a model for each series. Score their forecasts: add --rolling.")
        applied = open_run(run, data, table_columns(columns, series, time), (model, proposal))
        if rolling:
            sizes = {"horizon": horizon or 1, "first": first or 1, "origins": origins, "draws": draws or 1000}
            sizes |= {
                "particles": particles,
                "method": method,
                "season": season or season_of(nested(applied.saved.config, "model", "options"), applied.table),
            }
            _score_forecasts(applied, sizes, seed, as_json, out, plot, posterior)
        else:
            _evaluate(applied, {"particles": particles, "method": method}, seed, as_json, out)


def _evaluate(applied: Applied, how: dict[str, Any], seed: int, as_json: bool, out: Path | None) -> None:
    import jax
    from rich.console import Console

    from mcfo.inference.evaluation import evaluate as compute
    from mcfo.inference.evaluation import usual_repeats

    console, series_list, results = Console(stderr=as_json), applied.table.series_list, []
    with (
        status(f"Filtering {len(series_list)} series, after some seconds of compiling"),
        refusing(f"The model in {applied.run} cannot filter {applied.data}"),
    ):
        for one in applied.saved.seeds:
            repeats = usual_repeats(one.model, one.proposal)
            result = compute(one.model, one.proposal, series_list, **how, repeats=repeats, key=jax.random.key(seed))
            results.append((one.seed, result))
    about = {"exact": results[0][1].exact, "particles": results[0][1].particles, "seed": seed}
    text = _json(applied, about, results)
    if as_json:
        print(text)
    else:
        console.print(evaluation_table(results, f"{applied.run} on {applied.data}"))
        _say_in_sample(applied, console)
    _write(text, out)


def _score_forecasts(
    applied: Applied,
    sizes: dict[str, Any],
    seed: int,
    as_json: bool,
    out: Path | None,
    plot: Path | None,
    posterior: Path | None,
) -> None:
    """Scores the forecasts of every seed of a run, or those that are averaged over a posterior."""
    import jax
    from rich.console import Console

    from mcfo.inference.rolling_evaluation import evaluate_rolling as compute
    from mcfo.learning.saved_each import SavedEach
    from mcfo.posterior.averaging import evaluate_rolling_over

    console, table, results = Console(stderr=as_json), applied.table, {}
    applied = over_posterior(applied, posterior)
    with (
        status(f"Forecasting {len(table.series_list)} series, after some seconds of compiling"),
        refusing(f"The model in {applied.run} cannot forecast {applied.data}"),
    ):
        if posterior is not None:
            own = applied.learned
            results[own.seed] = evaluate_rolling_over(
                own.posterior, table.series_list, key=jax.random.key(seed), **sizes
            )
        elif isinstance(applied.saved, SavedEach):
            saved = applied.saved
            results[saved.seed] = saved.evaluate_rolling(applied.chosen, key=jax.random.key(seed), **sizes)
        else:
            for one in applied.saved.seeds:
                both = one.model, one.proposal
                results[one.seed] = compute(*both, table.series_list, key=jax.random.key(seed), **sizes)
    first = next(iter(results.values()))
    about = {"horizon": sizes["horizon"], "from": sizes["first"], "origins": sizes["origins"], "seed": seed}
    about |= {"exact": first.exact, "season": sizes["season"]}
    about |= {} if posterior is None else {"posterior": str(posterior)}
    text = _json(applied, about, list(results.items()))
    if as_json:
        print(text)
    else:
        how = "exact" if first.exact else f"{first.particles} particles, {first.draws} draws"
        console.print(score_table(results, f"{applied.run} on {applied.data}: forecasts ({how})"))
        console.print(NAIVE_NOTE, highlight=False)
        _say_in_sample(applied, console)
    for number, result in results.items():
        if result.collapsed:
            console.print(
                f"[yellow]Seed {number}: the filter lost {result.collapsed} of {len(result.series)} series, so that "
                "their scores mean little. Use more particles.[/yellow]"
            )
    _write(text, out)
    if plot is not None:
        from mcfo.reports.calibration import draw_rolling

        with written("Figure", plot, "--plot", console):
            draw_rolling(plot, results[applied.learned.seed], columns=table.columns, names=table.names)


def _json(applied: Applied, about: dict[str, Any], results: list[tuple[int, Any]]) -> str:
    seeds = [{"seed": number, **result.as_data()} for number, result in results]
    sample = {"in_sample": in_sample(applied)}
    content = {"run": str(applied.run), "data": str(applied.data), **sample, **about, "seeds": seeds}
    return json.dumps(content, indent=2, allow_nan=False)


def _write(text: str, out: Path | None) -> None:
    from mcfo.files import write_atomically

    if out is not None:
        with writing(out, "--out"):
            write_atomically(out, (text + "\n").encode())


def in_sample(applied: Applied) -> bool:
    """Whether the run learned from these very series."""
    from mcfo.learning.run_folder import data_digest

    learned = applied.saved.config.get("data")
    return isinstance(learned, dict) and data_digest(applied.table.series_list) == learned.get("sha256")


def _say_in_sample(applied: Applied, console: Any) -> None:
    if in_sample(applied):
        console.print(
            "In-sample: the model learned from these data. For an honest score hold some out: mcfo fit "
            "--holdout-steps N.",
            style="yellow",
            highlight=False,
        )


def season_of(options: Any, table: Any) -> int | None:
    """The steps in a season: that of the model's options, or that of the dates."""
    from mcfo.data.times import usual_season

    option = nested(options, "season")
    if option is not None:
        first = str(option).split(",")[0]
        return round(float(first)) if first.replace(".", "", 1).isdigit() and float(first) >= 2 else None
    return None if table.spacing is None else usual_season(table.spacing, table.spans)


NAIVE_NOTE = (
    "Naive forecasts repeat the last value (seasonal: of the same season); their errors are Gaussian with the variance "
    "of those before the first forecast, or of all where there are fewer than ten."
)


def evaluation_table(results: list[tuple[int, Any]], title: str) -> Any:
    """One column for each seed; the log-likelihood is the exact one where it is known."""
    each = [result for _, result in results]
    known = all(one.exact_nll_per_step is not None for one in each)
    nll = [one.exact_nll_per_step if known else one.nll_per_step for one in each]
    rows = {
        "log-likelihood" + (", exact" if known else ""): [
            f"{-value * one.steps:.3f}" + _error_of(one, known) for value, one in zip(nll, each, strict=True)
        ],
        "NLL per step": [f"{value:.5f}" for value in nll],
    }
    if not each[0].exact:
        if known:
            rows["  by particles"] = [f"{one.nll_per_step:.5f}" for one in each]
        rows[f"mean ESS of {each[0].particles}"] = [f"{one.ess:.1f}" for one in each]
        rows["  lowest"] = [f"{one.ess_min:.1f}" for one in each]
    rows["one-step RMSE"] = ["" if one.prediction_rmse is None else f"{one.prediction_rmse:.4g}" for one in each]
    if not each[0].exact:
        rows["collapsed series"] = [f"{one.collapsed} of {one.series}" for one in each]
    header = ["", *(f"seed {seed}" for seed, _ in results)]
    return build_table(header, [[name, *cells] for name, cells in rows.items() if any(cells)], title=title)


def _error_of(one: Any, known: bool) -> str:
    """The Monte Carlo error of an estimated log-likelihood."""
    return "" if known or one.log_evidence_error is None else f" ± {one.log_evidence_error:.2g}"


def score_table(results: dict[int, Any], title: str) -> Any:
    """A row for each seed and distance, and below them the naive forecasts."""
    first = next(iter(results.values()))
    named = {str(seed): result.scores for seed, result in results.items()} | first.naive
    rows = []
    for name, several in named.items():
        for scores in several:
            counts = (name, str(scores.ahead), str(scores.forecasts))
            sizes = (_log_score(scores), f"{scores.crps:.4g}", f"{scores.rmse:.4g}")
            rows.append([*counts, *sizes, f"{scores.coverage_50:.1%}", f"{scores.coverage_90:.1%}"])
    return build_table(
        ("seed", "ahead", "forecasts", "log score", "CRPS", "RMSE", "in 50%", "in 90%"), rows, title=title
    )


def _log_score(scores: Any) -> str:
    """With its Monte Carlo error, if it has one; a dash where that is too large to mean anything."""
    if scores.log_score != scores.log_score:
        return "–"
    return f"{scores.log_score:.4f}" + (f" ± {scores.log_score_error:.2g}" if scores.log_score_error else "")
