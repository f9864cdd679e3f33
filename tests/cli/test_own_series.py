"""One's own table: a look at it, models by name, inputs and uneven times, and what is refused."""

import json

import jax
import numpy as np
import pandas as pd
import pytest
import xarray
from typer.testing import CliRunner

import mcfo
from mcfo.catalogue.registry import CATALOGUE
from mcfo.cli.main import app
from support.commands import SMALL, invoke, planned, refused

pytestmark = [pytest.mark.xdist_group("own series"), pytest.mark.ci]

OWN = """
import jax.numpy as jnp
import numpyro.distributions as dist
from mcfo import MarkovModel


class Drift(MarkovModel):
    speed: jnp.ndarray

    def __init__(self):
        self.speed = jnp.zeros(1)

    def initial(self, memory, inputs):
        return dist.Normal(jnp.zeros(1), 1.0).to_event(1)

    def transition(self, memory, inputs):
        return dist.Normal(memory + self.speed, 1.0).to_event(1)

    def emission(self, memory, latent, inputs):
        return dist.Normal(latent, 1.0).to_event(1)
"""


def squeezed(result):
    return " ".join(result.stdout.split())


def test_every_model_is_listed_and_shown():
    listed = invoke("models")
    assert listed.exit_code == 0, listed.output
    for name, entry in CATALOGUE.items():
        assert name in listed.stdout
        assert set(entry.options) == set(entry.parameters()), f"{name}: the options and what is said of them differ"
        shown = invoke("models", name)
        assert shown.exit_code == 0, shown.output
        assert all(option in shown.stdout for option in entry.options)
        assert f"mcfo fit {name} --data" in shown.stdout
    assert refused(invoke("models", "locallevel"), "There is no model 'locallevel'. Did you mean 'local-level'?")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The same uneven series as CSV and Parquet, with an input; and one with two series."""
    folder = tmp_path_factory.mktemp("tables")
    draw = np.random.default_rng(0)
    days = np.cumsum(draw.choice([1, 1, 1, 2, 6], 30))
    frame = pd.DataFrame(
        {
            "date": [str(day.date()) for day in pd.Timestamp("2021-05-01") + pd.to_timedelta(days, "D")],
            "level": np.round(10 + draw.normal(size=30).cumsum(), 3),
            "driver": np.round(draw.normal(size=30), 3),
        }
    )
    frame.loc[[4, 11, 12], "level"] = np.nan
    frame.to_csv(folder / "uneven.csv", index=False)
    frame.to_parquet(folder / "uneven.parquet")
    two = pd.DataFrame({"series": [*"aaaabb"], "x": [1, 2, 3, 4, 5, 6], "flat": 3, "y": [0.5] + [None] * 4 + [1.5]})
    two.to_csv(folder / "two.csv", index=False)
    (folder / "own.py").write_text(OWN)
    return folder


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_look_at_a_file(tables, tmp_path, ending):
    picture = tmp_path / "picture.png"
    looked = ["data", "inspect", tables / f"uneven.{ending}", "--inputs", "driver", "--plot", picture]
    result = invoke(*looked)
    assert result.exit_code == 0, result.output
    text = squeezed(result)
    assert "1 series of 30 steps." in text
    assert "not evenly spaced: typically 1 day, at most 6 times that" in text
    assert "level 27 3 (10%)" in text
    assert "The longest run of missing steps has 2." in text
    assert "mcfo fit local-level" in text
    assert picture.read_bytes().startswith(b"\x89PNG")
    before = picture.read_bytes()
    assert refused(invoke(*looked), "exists already")
    assert picture.read_bytes() == before


def test_a_look_at_many_series(tables):
    result = invoke("data", "inspect", tables / "two.csv")
    assert result.exit_code == 0, result.output
    text = squeezed(result)
    assert "2 series of 2 to 4 steps (median 4), 6 in all. No times: each row is one step." in text
    assert "Column flat is constant (3)" in text
    assert "a 4 3 0" in text
    assert refused(invoke("data", "inspect", tables / "two.csv", "--columns", "z"), "has no column 'z'")
    assert refused(invoke("data", "inspect", tables / "none.csv"), "There is no file")


BAD = {
    "no such column": ("x\n1\n2\n", ["--columns", "y"], "has no column 'y'. There are: x."),
    "no such input": ("x\n1\n2\n", ["--inputs", "u"], "has no column 'u'"),
    "text in a number column": ("x,y\n1,2\n3,many\n", [], "line 3, column 'y': 'many' is not a number"),
    "a time twice": ("time,x\n1,5\n1,6\n", [], "line 3, column 'time': the time 1 stands in line 2 too"),
    "unsorted times": ("time,x\n2,5\n1,6\n", [], "line 3, column 'time': the time 1 comes after 2"),
    "dates of unknown order": ("date,x\n31.01.2020,5\n01.02.2020,6\n", [], "'31.01.2020' looks like a date, but is no"),
    "a single row": ("x\n1\n", [], "The series has a single row, but a model of time needs two or more"),
    "single rows": ("series,x\na,1\nb,2\n", [], "Each of the 2 series has a single row"),
    "all missing": ("time,x\n1,\n2,NA\n", [], "All 2 values of the series are missing"),
    "a constant series": ("x\n3\n3\n3\n", [], "Column 1 of the values is constant: every one that is known is 3"),
    "an input that is missing": ("x,u\n1,2\n2,\n", ["--inputs", "u"], "line 3, column 'u': the input is missing"),
    "no such meaning": ("x\n1\n2\n", ["--irregular", "row"], "Did you mean 'rows'?"),
    "gaps of no times": ("x\n1\n2\n", ["--irregular", "inputs"], "There are no times from which to take the gaps"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("model", ["local-level", "linear-gaussian"])
def test_bad_tables_are_refused_and_nothing_is_written(case, model, tmp_path):
    content, options, message = BAD[case]
    (tmp_path / "data.csv").write_text(content)
    result = invoke("fit", model, "--data", tmp_path / "data.csv", "--out", tmp_path / "run", *options, *SMALL)
    assert refused(result, message)
    assert {path.name for path in tmp_path.iterdir()} == {"data.csv"}


IMPOSSIBLE = {
    "poisson-counts": ("x\n3\n-1\n", "step 2, column 1 of the values: -1 is not a count. The model poisson-counts"),
    "negative-binomial-counts": ("x\n3\n1.5\n", "1.5 is not a count. The model negative-binomial-counts wants"),
    "vrnn": ("x\n0\n2\n", "2 is neither 0 nor 1"),
    "stochastic-volatility": ("x\n0\n0\n", "Column 1 of the values is zero wherever it is known"),
    "local-trend": ("x\n1\n1\n", "Column 1 of the values is constant"),
}


@pytest.mark.parametrize("model", IMPOSSIBLE)
def test_values_that_the_model_cannot_explain(model, tmp_path):
    content, message = IMPOSSIBLE[model]
    (tmp_path / "data.csv").write_text(content)
    result = invoke("fit", model, "--data", tmp_path / "data.csv", "--out", tmp_path / "run", *SMALL)
    assert refused(result, message)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("linear-gaussian", ["--irregular", "inputs"], "takes each row for one step: it cannot read the time between"),
        ("deep", ["--inputs", "driver"], "The model deep takes no inputs. Leave out --inputs, or use one of: local-le"),
        (
            "stochastic-volatility",
            ["--inputs", "driver", "--set", "leverage=-0.3"],
            "takes either inputs or leverage, not both",
        ),
        ("stochastic-volatility", ["--set", "tails=fat"], "There are no tails 'fat'"),
        ("stochastic-volatility", ["--set", "degrees=2"], "degrees must be finite and above 2"),
        ("local-level", ["--set", "initial_variance=-1"], "initial_variance must be positive and finite"),
        ("linear-gaussian", ["--set", "latent=0"], "latent must lie from 1 to 1000"),
    ],
)
def test_what_a_model_does_not_take(tables, tmp_path, model, options, message):
    fit = ["fit", model, "--data", tables / "uneven.csv", "--columns", "level", "--out", tmp_path / "run", *SMALL]
    assert refused(invoke(*fit, *options), message)
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def driven(tables):
    """A run on uneven times with an input, as a new user would make it."""
    fit = ["fit", "local-level", "--data", tables / "uneven.csv", "--inputs", "driver", "--out", tables / "run"]
    result = invoke(*fit, *SMALL)
    assert result.exit_code == 0, result.output
    assert "The model reads the time since the previous row, in units of 1 day" in squeezed(result)
    return tables / "run"


def test_uneven_times_and_inputs_are_read_again(tables, driven):
    """Whatever the format, what drives the model is found by the names that it learned with, in its own unit."""
    data = json.loads((driven / "config.json").read_text())["data"]
    assert (data["inputs"], data["unit"], data["columns"]) == (["driver"], 86400.0, ["level"])
    found = [
        json.loads(invoke("evaluate", driven, "--data", tables / file, "--particles", 20, "--json").stdout)["seeds"]
        for file in ("uneven.csv", "uneven.parquet")
    ]
    assert found[0] == found[1]
    assert abs(found[0][0]["exact_nll_per_step"] - found[0][0]["nll_per_step"]) < 0.2
    plain = mcfo.read_series(tables / "uneven.csv", values=["level"]).series_list
    with pytest.raises(
        ValueError, match=r"reads 2 inputs .the time since the previous row, driver., but these data have 0"
    ):
        mcfo.load_run(driven, series_list=plain)


@pytest.mark.slow
def test_states_streams_and_scores_read_what_drives_the_model(tables, driven, tmp_path):
    """The log-likelihood of filter, smooth, stream and Python is that of one filter, driven by inputs and times."""
    few = ["--data", tables / "uneven.csv", "--particles", 20]
    for task in ("filter", "smooth"):
        result = invoke(task, driven, *few, "--out", tmp_path / f"{task}.nc")
        assert result.exit_code == 0, result.output
    saved = mcfo.load_run(driven)
    table = mcfo.read_for_run(driven, tables / "uneven.csv")
    one = saved.choose()
    trace = mcfo.SMC(20)(one.model, one.proposal, table.series_list[0], key=jax.random.key(0))
    evidence = float(trace.log_evidence)
    dates = pd.read_csv(tables / "uneven.csv")["date"].tolist()
    for task in ("filter", "smooth"):
        with xarray.open_dataset(tmp_path / f"{task}.nc") as found:
            np.testing.assert_allclose(found["log_evidence"].item(), evidence, rtol=1e-9)
            # When each step was, as the file has it.
            assert found["moment"].dims == ("series", "time")
            np.testing.assert_array_equal(found["moment"].values[0], np.array(dates, "M8[ns]"))
    result = invoke("filter", driven, *few, "--out", tmp_path / "states.csv", "--plot", tmp_path / "states.png")
    assert result.exit_code == 0, result.output
    assert pd.read_csv(tmp_path / "states.csv")["moment"].tolist()[::2] == dates
    filtered = saved.filter(tables / "uneven.csv", particles=20)
    np.testing.assert_allclose(filtered["log_evidence"].item(), evidence, rtol=1e-9)
    # Line by line, with the time since the one before and the input.
    observed = np.asarray(table.series_list[0].mask())[:, 0]
    lines = [
        json.dumps({"level": float(x) if seen else None, "elapsed": float(gap), "driver": float(driver)})
        for x, seen, (gap, driver) in zip(
            table.series_list[0].observations[:, 0], observed, table.series_list[0].inputs, strict=True
        )
    ]
    answered = CliRunner().invoke(app, ["stream", str(driven), "--particles", "20"], input="\n".join(lines))
    assert answered.exit_code == 0, answered.output
    answers = [json.loads(line) for line in answered.stdout.splitlines()]
    np.testing.assert_allclose(sum(answer["log_predictive"] for answer in answers), evidence, rtol=1e-9)
    for line, message in (
        ("3", "the input driver is missing"),
        ('{"level": 3, "driver": null}', "the input driver is missing"),
        ('{"level": 3, "driver": 1, "elapsed": 0}', "elapsed is 0, but a positive number is wanted"),
        ('{"level": 3, "drivr": 1}', "the input driver is missing"),
    ):
        assert refused(CliRunner().invoke(app, ["stream", str(driven), "--particles", "20"], input=line), message)
    rolled = invoke("evaluate", driven, *few, "--rolling", "--draws", 20, "--json")
    assert rolled.exit_code == 0, rolled.output
    (scores,) = json.loads(rolled.stdout)["seeds"][0]["scores"]
    assert scores["forecasts"] == observed.sum()
    np.testing.assert_allclose(
        scores["log_score"] * scores["forecasts"], evidence, rtol=1e-3
    )  # where nothing is observed, the weights speak of the proposal alone
    assert invoke("report", driven, "--data", tables / "uneven.csv").exit_code == 0
    with pytest.raises(ValueError, match="the coming ones must be known"):
        saved.forecast(tables / "uneven.csv", 2, particles=20, draws=5)
    future = saved.forecast(tables / "uneven.csv", 2, particles=20, draws=5, inputs=np.ones((2, 2)))
    assert np.isfinite(future["observation_mean"].values).all()


def test_the_future_of_a_model_with_inputs(tables, driven, tmp_path):
    forecast = ["forecast", driven, "--data", tables / "uneven.csv", "--steps", 3, "--particles", 20]
    out = tmp_path / "next.csv"
    assert refused(invoke(*forecast, "--out", out), "reads the inputs driver, of which the coming ones must be known")
    future = tmp_path / "future.csv"
    future.write_text("driver\n1\n-1\n")
    assert refused(
        invoke(*forecast, "--out", out, "--future", future), "3 coming steps are wanted, but there are those"
    )
    assert not out.exists()
    means = []
    for driver in (0, 1):
        future.write_text(f"driver\n{driver}\n0\n0\n")
        target = tmp_path / f"{driver}.csv"
        result = invoke(*forecast, "--out", target, "--future", future)
        assert result.exit_code == 0, result.output
        means.append(pd.read_csv(target)["mean"].to_numpy())
    weight = float(mcfo.load_run(driven).choose().model.emission_inputs[0, 0])
    np.testing.assert_allclose(means[1] - means[0], [weight, 0, 0], atol=1e-5)
    assert abs(weight) > 1e-3
    simulate = ["simulate", driven, "--steps", 3, "--count", 2]
    assert refused(invoke(*simulate, "--out", tmp_path / "drawn.csv"), "reads the inputs driver, of which the coming")
    both = tmp_path / "both.csv"
    both.write_text("series,driver\na,1\nb,1\n")
    assert refused(invoke(*simulate, "--out", tmp_path / "drawn.csv", "--future", both), "the inputs of 2 series")
    drawn = []
    for driver in (0, 1):
        target = tmp_path / f"drawn-{driver}.csv"
        future.write_text(f"driver\n{driver}\n0\n0\n")
        result = invoke(*simulate, "--out", target, "--future", future)
        assert result.exit_code == 0, result.output
        drawn.append(pd.read_csv(target)["level"].to_numpy())
    np.testing.assert_allclose(drawn[1] - drawn[0], [weight, 0, 0] * 2, atol=1e-5)


@pytest.mark.slow
def test_a_run_finds_its_columns_again(tables, tmp_path):
    """By their names, whatever their order and whatever stands beside them; what is asked for comes first."""
    draw = np.random.default_rng(1)
    names, steps = ["when", "station", "deep", "wide", "note"], [6, 5]
    rows = [
        [f"2020-01-{day + 1:02}", station, *draw.normal(size=2).round(3), "ok"]
        for station, count in zip("ab", steps, strict=True)
        for day in range(count)
    ]
    frame = pd.DataFrame(rows, columns=names)
    frame.to_csv(tmp_path / "first.csv", index=False)
    frame[["note", "wide", "station", "deep", "when"]].to_csv(tmp_path / "shuffled.csv", index=False)
    frame[["wide", "station", "deep", "when"]].to_parquet(tmp_path / "shuffled.parquet", index=False)
    fit = ["fit", "linear-gaussian", "--data", tmp_path / "first.csv", "--out", tmp_path / "run", *SMALL]
    result = invoke(*fit, "--columns", "deep,wide", "--series", "station", "--time", "when")
    assert result.exit_code == 0, result.output

    def found(file, *more):
        evaluated = invoke("evaluate", tmp_path / "run", "--data", tmp_path / file, "--particles", 10, "--json", *more)
        assert evaluated.exit_code == 0, evaluated.output
        return json.loads(evaluated.stdout)["seeds"][0]["log_evidence"]

    assert found("first.csv") == found("shuffled.csv") == found("shuffled.parquet")
    assert found("first.csv", "--columns", "wide,deep") != found("first.csv")
    states = mcfo.load_run(tmp_path / "run").filter(tmp_path / "shuffled.csv", particles=10)
    assert states["series"].values.tolist() == ["a", "b"]
    assert states["dimension"].values.tolist() == ["deep", "wide"]
    # Other names stand for themselves, and a file that lacks one of them is read as any other.
    frame.rename(columns={"deep": "first", "wide": "second", "station": "series"}).drop(
        columns=["note", "when"]
    ).to_csv(tmp_path / "other.csv", index=False)
    assert found("other.csv") == found("first.csv")
    lacking = invoke("evaluate", tmp_path / "run", "--data", tmp_path / "first.csv", "--columns", "deep")
    assert refused(lacking, "learned from 2 columns of values, but these data have 1")


def test_rows_are_steps_if_one_says_so(tables, tmp_path, monkeypatch):
    fit = ["local-level", "--data", tables / "uneven.csv", "--columns", "level", "--irregular", "rows"]
    result = planned(monkeypatch, *fit, "--out", tmp_path / "run", *SMALL)
    assert "The model reads" not in result.stdout
    assert "unit" not in json.loads((tmp_path / "run" / "config.json").read_text())["data"]
    before = (tmp_path / "run" / "config.json").read_bytes()
    assert refused(invoke("fit", *fit, "--out", tmp_path / "run", *SMALL), "exists already")
    assert (tmp_path / "run" / "config.json").read_bytes() == before


@pytest.mark.ci
def test_an_error_in_an_own_file_is_reported_at_its_line_by_every_command(tables, tmp_path):
    own, data = tmp_path / "own.py", ["--data", tables / "uneven.csv", "--columns", "level"]
    own.write_text(OWN)
    run = tmp_path / "run"
    fitted = invoke("fit", f"{own}:Drift", *data, "--out", run, *SMALL)
    assert fitted.exit_code == 0, fitted.output
    assert "takes each row for one step" in squeezed(fitted)
    own.write_text(OWN.replace("self.speed, 1.0)", "self.sped, 1.0)"))
    model = ["--model", f"{own}:Drift"]
    for command in (
        ["fit", f"{own}:Drift", *data, "--out", tmp_path / "other", *SMALL],
        ["evaluate", run, *data, *model],
        ["forecast", run, *data, *model, "--out", tmp_path / "next.csv"],
        ["simulate", run, *model, "--out", tmp_path / "drawn.csv"],
        ["filter", run, *data, *model, "--out", tmp_path / "states.nc"],
        ["smooth", run, *data, *model, "--out", tmp_path / "states.nc"],
        ["evaluate", run, *data, *model, "--rolling"],
        ["report", run, *data, *model],
        ["stream", run, *model],
    ):
        assert refused(invoke(*command), "own.py, line 17, in transition: AttributeError"), command[0]
    for name in ("next.csv", "drawn.csv", "states.nc"):
        assert not (tmp_path / name).exists()


def rules_of(run):
    objective = json.loads((run / "config.json").read_text())["objective"]
    return tuple(objective[side] and objective[side]["rule"]["name"] for side in ("theta", "phi"))


@pytest.mark.parametrize(
    ("model", "options", "rules"),
    [
        ("local-level", [], ("fisher", None)),
        ("own.py:Drift", [], ("fisher", "dreg")),
        ("local-level", ["--objective-option", "theta=filter-score"], ("filter-score", None)),
        ("local-level", ["--window", "8"], ("filter-score", None)),
        ("own.py:Drift", ["--objective", "nasmc"], ("filter-score", "inclusive-kl")),
        ("deep", [f"--set={name}_units=2" for name in ("emission", "encoder")], ("filter-score", "reparameterized")),
    ],
    ids=["named", "own", "chosen", "windows", "other objective", "networks"],
)
def test_few_series_are_learned_by_the_likelihoods_gradient(tables, tmp_path, monkeypatch, model, options, rules):
    """Unless one chooses, or the model is a network, which learns by the objective's own rules. A proposal that follows
    its model learns nothing."""
    named = tables / model if ":" in model else model
    data = ["--data", tables / "uneven.csv", "--columns", "level", "--irregular", "rows"]
    planned(monkeypatch, named, *data, "--out", tmp_path / "run", *SMALL, *options)
    assert rules_of(tmp_path / "run") == rules


@pytest.mark.slow
def test_fit_reaches_the_maximum_likelihood_of_the_nile(tmp_path):
    """The command as a new user gives it, beside the exact maximum; the filter score fails the same test."""
    import statsmodels.api as sm

    values = sm.datasets.nile.load_pandas().data["volume"].to_numpy(float)
    np.savetxt(tmp_path / "nile.csv", values, header="flow", comments="")
    exact = sm.tsa.UnobservedComponents(values, "local level")
    exact.ssm.initialize_known(np.array([1000.0]), np.array([[9e4]]))
    exact.ssm.loglikelihood_burn = 0
    best = exact.fit(disp=False, method="nm", maxiter=2000, ftol=1e-10, xtol=1e-6)
    fit = ["fit", "local-level", "--data", tmp_path / "nile.csv", "--devices", 1, "--no-checks"]
    fit += ["--objective", "mcfo"]
    known = ["--set", "initial_mean=1000", "--set", "initial_variance=9e4"]
    reached = {}
    for name, options in {"default": [], "other": ["--objective-option", "theta=filter-score"]}.items():
        result = invoke(*fit, *known, *options, "--out", tmp_path / name)
        assert result.exit_code == 0, result.output
        model = mcfo.load_run(tmp_path / name).choose().model
        variances = [float(model.emission_noise.matrix[0, 0]), float(model.transition_noise.matrix[0, 0])]
        reached[name] = variances, best.llf - exact.loglike(variances)
    variances, below = reached["default"]
    assert -1e-6 < below < 0.1
    np.testing.assert_allclose(variances, best.params, rtol=0.25)
    assert reached["other"][1] > 0.1
