"""The loop: what it computes, what it keeps, what it refuses."""

import fcntl
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mcfo
from mcfo.data.npz import read_arrays
from mcfo.errors import InputError, OtherRunError
from mcfo.learning import step as training_step
from mcfo.learning.parameters import Modules, named_arrays
from mcfo.learning.progress import Silent
from mcfo.learning.run_folder import read_metrics
from mcfo.learning.trainer import Trainer
from mcfo.reports.run_page import write_run_report
from support.learning import FIXED, make_series, same_metrics, start

pytestmark = pytest.mark.xdist_group("fit")  # its fixtures take long: one worker makes them

STEPS = 12
COMMON = {"steps": STEPS, "batch": 2, "log_every": 1, "fixed": FIXED, "learning_rate": 0.05}


def learn(**options):
    model, proposal = start()
    objective = options.pop("objective", None) or mcfo.objectives.mcfo(5)
    return mcfo.fit(
        model, proposal, options.pop("data", None) or make_series(4), objective=objective, **COMMON | options
    )


def watch(model, proposal):
    return {"theta_1": model.transition_matrix[0, 0], "phi_4": proposal.observation_weight[0, 0]}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One run that many tests look at: two seeds, validation, a folder."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    fitted = learn(
        validation=make_series(2, seed=1, series_id=100),
        seeds=(0, 3),
        watch=watch,
        out=folder,
        evaluate_every=3,
        average=0.25,
        select="average",
    )
    return fitted, folder


def test_metrics_have_the_contracted_keys(run):
    fitted, folder = run
    lines = read_metrics(folder)
    assert lines == list(fitted.metrics)
    assert [(line["step"], line["seed"]) for line in lines] == [(n, s) for n in range(1, STEPS + 1) for s in (0, 3)]
    wanted = {"step", "loss", "log_evidence_per_step", "ess", "grad_norm_theta", "grad_norm_phi", "skipped", "seconds"}
    for line in lines:
        assert wanted <= line.keys()
        assert ("validation_nll_per_step" in line) == (line["step"] % 3 == 0)
        assert 1 <= line["ess"] <= 5
        assert line["skipped"] == 0


def test_the_folder_says_everything(run):
    fitted, folder = run
    config = json.loads((folder / "config.json").read_text())
    assert config["objective"]["theta"]["sampler"]["particles"] == 5
    assert config["settings"]["seeds"] == [0, 3]
    assert config["data"]["series"] == 4
    assert config["data"]["steps"] == 6 + 5 + 4 + 6
    assert config["model"]["fixed"] == list(FIXED)
    results = json.loads((folder / "results.json").read_text())
    assert [one["evaluation"]["nll_per_step"] for one in results["seeds"]] == [
        one.evaluation.nll_per_step for one in fitted.seeds
    ]
    assert results["selected"] == "average"
    assert results["seeds"][0]["parameters"]["model.transition_matrix"] == [
        [float(fitted.seeds[0].model.transition_matrix[0, 0])]
    ]


def test_parameters_are_averaged_over_the_last_steps(run):
    fitted, _ = run
    for one in fitted.seeds:
        path = [line["watched"] for line in fitted.metrics if line["seed"] == one.seed]
        found = watch(one.model, one.proposal)
        for name, value in found.items():
            np.testing.assert_allclose(value, np.mean([line[name] for line in path[-3:]]), rtol=1e-12)
            assert abs(value - path[-1][name]) > 1e-6, "the last parameters are not the average"


def test_fixed_parameters_stay_and_the_others_move(run):
    fitted, _ = run
    before, after = named_arrays(Modules(*start())), named_arrays(Modules(fitted.model, fitted.proposal))
    for name, array in before.items():
        fixed = any(name.startswith(path) for path in FIXED)
        assert (np.asarray(array) == np.asarray(after[name])).all() == fixed, name


def test_a_run_is_loaded_without_pickles(run):
    fitted, folder = run
    saved = mcfo.load_run(folder, like=start())
    assert [one.seed for one in saved.seeds] == [0, 3]
    for one, other in zip(saved.seeds, fitted.seeds, strict=True):
        assert eqx.tree_equal((one.model, one.proposal), (other.model, other.proposal))
    assert all(array.dtype != object for array in read_arrays(folder / "model.npz").values())
    wrong = mcfo.models.StochasticVolatility(), mcfo.proposals.Bootstrap()
    with pytest.raises(InputError, match="holds another model"):
        mcfo.load_run(folder, like=wrong)
    with pytest.raises(InputError, match="was built in Python"):
        mcfo.load_run(folder)


def test_a_module_is_saved_and_loaded(tmp_path):
    model, _ = start()
    other = eqx.tree_at(lambda m: m.transition_matrix, model, model.transition_matrix * 2)
    mcfo.save(tmp_path / "model.npz", other)
    assert eqx.tree_equal(mcfo.load(tmp_path / "model.npz", model), other)
    (tmp_path / "pickled.npz").write_bytes(b"\x80\x04N.")
    with pytest.raises(InputError, match="damaged"):
        mcfo.load(tmp_path / "pickled.npz", model)


@pytest.mark.slow
def test_one_seed_of_several_is_the_seed_alone(run):
    fitted, _ = run
    alone = learn(seeds=(3,), watch=watch, average=0.25, select="average")
    of_three = [line for line in fitted.metrics if line["seed"] == 3]
    for line, other in zip(alone.metrics, of_three, strict=True):
        np.testing.assert_allclose(line["loss"], other["loss"], rtol=1e-10)
        np.testing.assert_allclose(line["watched"]["theta_1"], other["watched"]["theta_1"], rtol=1e-10)
    different = [line for line in fitted.metrics if line["seed"] == 0]
    assert abs(different[0]["loss"] - of_three[0]["loss"]) > 1e-3


@pytest.mark.slow
def test_seeds_of_networks_go_one_after_the_other_and_learn_the_same(run, monkeypatch):
    fitted, _ = run
    monkeypatch.setattr(training_step, "_FEW", 0)
    slowly = learn(
        validation=make_series(2, seed=1, series_id=100),
        seeds=(0, 3),
        watch=watch,
        evaluate_every=3,
        average=0.25,
        select="average",
    )
    assert len(slowly.metrics) == len(fitted.metrics)
    for one, other in zip(slowly.metrics, fitted.metrics, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-9)
        assert one["watched"] == pytest.approx(other["watched"], rel=1e-9)
    assert slowly.seeds[1].evaluation.nll_per_step == pytest.approx(fitted.seeds[1].evaluation.nll_per_step, rel=1e-9)


@pytest.mark.slow
def test_updates_compile_once():
    model, proposal = start()
    settings = mcfo.Settings(steps=7, batch=2, log_every=3, fixed=FIXED)
    trainer = Trainer(mcfo.objectives.mcfo(5), Modules(model, proposal), mcfo.stack(make_series(4)), None, settings)
    state = trainer.start()
    while int(state.step) < 7:
        state, _ = trainer.advance(state)
        state = trainer.replicate(jax.tree.map(np.asarray, state))  # as after a resume
    assert trainer._chunk._cache_size() == 1


class Stop(Exception):
    pass


class StopAt(Silent):
    def __init__(self, step):
        self.step = step

    def update(self, lines):
        if lines[0]["step"] >= self.step:
            raise Stop


@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_bit(run, tmp_path):
    whole, _ = run
    options = {
        "validation": make_series(2, seed=1, series_id=100),
        "seeds": (0, 3),
        "watch": watch,
        "out": tmp_path / "run",
        "evaluate_every": 3,
        "average": 0.25,
        "select": "average",
        "checkpoint_seconds": 0.0,
    }
    with pytest.raises(Stop):
        learn(**options, listener=StopAt(11))
    assert not (tmp_path / "run" / "results.json").exists()
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"seed": 0, "st')  # torn by a kill
    with pytest.raises(InputError, match="has not ended"):
        mcfo.load_run(tmp_path / "run", like=start())
    with pytest.raises(InputError, match="exists already"):
        learn(**options)
    with pytest.raises(OtherRunError, match=r"settings\.batch was 2 and is 3"):
        learn(**options | {"batch": 3}, resume=True)
    with (tmp_path / "run" / ".lock").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="Another process is learning"):
            learn(**options, resume=True)
    resumed = learn(**options, resume=True)
    assert same_metrics(resumed.metrics, whole.metrics)
    assert same_metrics(read_metrics(tmp_path / "run"), whole.metrics)
    for name, array in whole.arrays().items():
        assert (array == resumed.arrays()[name]).all(), name


@pytest.mark.slow
def test_updates_are_those_of_the_optimiser_by_hand():
    """The whole batch at every step, so that nothing is left to chance but the particles."""
    model, proposal = start()
    objective = mcfo.objectives.nasmc(5)
    data = make_series(3)
    fitted = learn(data=data, objective=objective, batch=3, steps=3, optimizer="sgd", clip=0.1, select="last", fixed=())
    optimizer = optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.05))
    modules = eqx.filter((model, proposal), eqx.is_inexact_array)
    state = optimizer.init(modules)

    batch = mcfo.stack(data)

    @eqx.filter_jit
    def gradients(both, step):
        # Random numbers belong to the series, so its place in the batch does not matter.
        key = jax.random.fold_in(jax.random.key(0), step)
        return eqx.filter_grad(lambda both: objective.loss(*both, batch, key=key)[0])(both)

    for step in range(3):
        gradient = gradients((model, proposal), jnp.asarray(step))
        updates, state = optimizer.update(gradient, state)
        model, proposal = eqx.apply_updates((model, proposal), updates)
    for name, array in named_arrays(Modules(model, proposal)).items():
        np.testing.assert_allclose(fitted.arrays()[name][0], array, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    "absurd",
    [
        pytest.param(1e200, marks=pytest.mark.slow),
        # A finite gradient whose square is not: it would ruin the optimizer's state for ever.
        pytest.param(1e140, marks=pytest.mark.slow),
        pytest.param(np.nan, marks=pytest.mark.slow),
    ],
    ids=["too large", "too large for Adam", "NaN that no mask knows of"],
)
def test_bad_updates_are_skipped_and_counted(absurd, tmp_path):
    """One of two series is absurd and each update sees one of them: every other update is skipped."""
    good, bad = make_series(1)[0].pad(7), make_series(2, series_id=5)[0].pad(7)
    values = np.array(bad.observations)
    values[2] = absurd
    bad = eqx.tree_at(lambda s: s.observations, bad, jax.numpy.asarray(values))
    fitted = learn(data=[good, bad], batch=1, steps=6, select="last", out=tmp_path / "run")
    assert fitted.skipped == 3
    assert [line["skipped"] for line in fitted.metrics][-1] == 3
    assert sum(line["loss"] is None for line in fitted.metrics) == 3
    assert all(np.isfinite(array).all() for array in fitted.arrays().values())
    assert fitted.evaluation.collapsed == (absurd != 1e140)
    assert fitted.evaluation.ess_min < 5
    page = write_run_report(tmp_path / "run").read_text()
    assert "3 updates were skipped" in page
    alone = learn(data=[good], batch=1, steps=1, select="last")
    moved = fitted.arrays()["model.transition_matrix"] - np.asarray(start()[0].transition_matrix)
    assert (
        abs(moved).max()
        > 0.5 * abs(alone.arrays()["model.transition_matrix"] - np.asarray(start()[0].transition_matrix)).max()
    )


@pytest.mark.slow
def test_early_stopping_keeps_the_best():
    """A rate that ruins the parameters: the validation NLL rises, and the best are kept."""
    fitted = learn(
        validation=make_series(3, seed=1, series_id=100), learning_rate=0.5, steps=40, evaluate_every=1, patience=3
    )
    curve = [line["validation_nll_per_step"] for line in fitted.metrics]
    curve = [np.inf if value is None else value for value in curve]
    assert fitted.stopped == "early"
    assert fitted.steps == int(np.argmin(curve)) + 1 + 3 < 40
    assert fitted.seeds[0].best_step == int(np.argmin(curve)) + 1
    assert fitted.selected == "best"
    np.testing.assert_allclose(fitted.evaluation.nll_per_step, min(curve), rtol=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": 3}, "There is no setting 'step'. Did you mean 'steps'?"),
        ({"steps": 0}, "steps must be a whole number, at least 1, but got 0"),
        ({"optimizer": "addam"}, "There is no optimizer 'addam'. Did you mean 'adam'?"),
        ({"optimizer": 3}, "a name ('adam') or an optax transformation"),
        ({"optimizer_options": {"b_1": 0.1}}, "adam has no option 'b_1'. Did you mean 'b1'?"),
        ({"schedule": "cosin"}, "Did you mean 'cosine'?"),
        ({"schedule": "exponential", "schedule_options": {"decay": 1}}, "Did you mean 'decay_rate'?"),
        ({"learning_rate": -1.0}, "The learning rate must be a positive number"),
        ({"rates": "by-with"}, "There are no rates 'by-with'. Did you mean 'by-width'?"),
        ({"clip": 0.0}, "clip is a positive norm"),
        ({"seeds": (1, 1)}, "The seeds must be different"),
        ({"seeds": (-1,)}, "seed must be a whole number"),
        ({"fixed": ("model.transition_matrx",)}, "Did you mean 'model.transition_matrix'?"),
        ({"fixed": ("model", "proposal")}, "Nothing is left to learn"),
        ({"patience": 2}, "need held-out series"),
        ({"evaluate_every": 2}, "need held-out series"),
        ({"clip": float("inf")}, "clip is a positive norm"),
        ({"optimizer": "noisy_sgd"}, "There is no optimizer 'noisy_sgd'"),
        ({"optimizer": "adamw", "optimizer_options": {"weight_decay": "abc"}}, "does not work with these options"),
        ({"optimizer_options": {"eps": float("nan")}}, "a finite number is wanted"),
        ({"optimizer_options": {"mu_dtype": np.float32}}, "Build the optimizer with optax itself"),
        ({"optimizer": optax.sgd(0.1), "schedule": "cosine"}, "has its own rate"),
        ({"watch": lambda model, proposal: {"x": np.ones(2)}}, "numbers are wanted"),
        ({"average": 2}, "average is a share"),
        ({"select": "beste"}, "select is 'best', 'average' or 'last'"),
        ({"devices": 99}, "99 devices are wanted, but JAX has 1"),
        ({"objective": mcfo.objectives.bootstrap(5)}, "bootstrap() filters with the model's own prior"),
        ({"validation": [mcfo.Series.from_values(np.ones((3, 2)))]}, "1 observed dimensions"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_cannot_be_is_refused(options, message, tmp_path):
    with pytest.raises(InputError) as error:
        learn(**options, out=tmp_path / "run")
    assert message in str(error.value)
    assert not (tmp_path / "run").exists()


def test_any_optimiser_and_schedule_of_optax():
    settings = mcfo.Settings.from_options(
        {"optimizer": "adamw", "optimizer_options": {"weight_decay": 0.1}, "schedule": "warmup-cosine", "clip": 1.0}
    )
    assert settings.as_data()["optimizer"] == "adamw"
    own = mcfo.Settings.from_options({"optimizer": optax.sgd(0.1)})
    assert "learning_rate" not in own.as_data()
    pendulum = mcfo.Settings.from_options(
        {
            "schedule": "exponential",
            "schedule_options": {"transition_steps": 10, "decay_rate": 0.998, "staircase": True, "end_value": 1e-4},
        }
    )
    rate = pendulum._rate()
    np.testing.assert_allclose([rate(9), rate(10), rate(10**6)], [0.01, 0.00998, 1e-4], rtol=1e-6)
