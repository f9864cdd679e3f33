"""Traced programs that are kept: the same numbers, and nothing that is not the same program."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mcfo
from mcfo.learning import traced
from mcfo.learning.parameters import Modules, named_arrays
from mcfo.learning.traced import Unknown, digest, keeping_traced, kept
from mcfo.learning.trainer import Trainer
from support.learning import FIXED, make_series, start


class OwnModel(mcfo.models.LinearGaussian):
    """Its code is in no package whose version is known."""


class Counted:
    """A function of a dictionary and a number that knows how often it was traced."""

    def __init__(self):
        self.traced = 0

    def __call__(self, state, number):
        self.traced += 1
        return {"state": jnp.cumsum(state["state"]) * number}

    def program(self, folder, facts="facts"):
        with keeping_traced(folder):
            return kept(self, lambda state, _: state, facts, jax.jit)


ARGUMENTS = {"state": np.linspace(0.1, 0.7, 5, dtype=np.float32)}, np.float32(0.3)


def run(folder, facts="facts", arguments=ARGUMENTS):
    """What came out, and how often it was traced for that."""
    function = Counted()
    program = function.program(folder, facts)
    first, second = program(*arguments), program(*arguments)
    np.testing.assert_array_equal(first["state"], second["state"])
    return np.asarray(first["state"]), function.traced


def test_a_kept_program_is_not_traced_again(tmp_path):
    usual, _ = run(None)
    for times in (1, 0):
        found, count = run(tmp_path)
        np.testing.assert_array_equal(found, usual, strict=True)
        assert count == times
    assert len(list(tmp_path.iterdir())) == 1, "and nothing is left beside it"


@pytest.mark.parametrize(
    "spoil",
    [lambda content: content[:-9], lambda content: b"", lambda content: bytes(500)],
    ids=["torn", "empty", "no"],
)
def test_a_file_that_is_torn_or_foreign_is_written_anew(tmp_path, spoil):
    usual, _ = run(tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(spoil(whole))
    for times in (1, 0):
        found, count = run(tmp_path)
        np.testing.assert_array_equal(found, usual, strict=True)
        assert count == times


def test_a_program_of_other_arguments_is_not_taken(tmp_path):
    run(tmp_path)
    (path,) = tmp_path.iterdir()
    assert traced._read(path, jax.tree.leaves(ARGUMENTS)) is not None
    assert traced._read(path, [np.zeros(5, np.float32)]) is None


def test_a_folder_that_cannot_be_written_to_only_makes_it_slower(tmp_path):
    for _ in range(2):
        assert run(tmp_path / "not" / "there")[1] == 1
    assert not list(tmp_path.iterdir())


def test_facts_and_shapes_make_another_program(tmp_path):
    other = {"state": np.ones(6, np.float32)}, np.float32(0.3)
    for facts, arguments in (("facts", ARGUMENTS), ("others", ARGUMENTS), ("facts", other)):
        assert run(tmp_path, facts, arguments)[1] == 1
    assert run(tmp_path, lambda: None)[1] == 1, "of which nothing is known"
    assert len(list(tmp_path.iterdir())) == 3


def test_errors_of_the_function_come_through(tmp_path):
    with pytest.raises(TypeError, match="cumsum"):
        run(tmp_path, arguments=({"state": None}, np.float32(0.3)))


def test_the_digest_knows_what_a_program_follows_from(monkeypatch):
    values = [0, 0.0, False, None, "0", (0,), [0], {"a": 0}, np.zeros(1), np.ones(1), np.zeros(1, np.float32)]
    names = [np.sin, jax.nn.relu, jax.nn.softplus, mcfo.resampling.Systematic, mcfo.resampling.Systematic()]
    objectives = [
        mcfo.objectives.mcfo(5),
        mcfo.objectives.mcfo(6),
        mcfo.objectives.mcfo(5, phi="dreg"),
        mcfo.objectives.mcfo(5, sweeps=2),
        mcfo.objectives.nasmc(5),
    ]
    known = [*values, *names, *objectives, start()[0]]
    assert len({digest(one) for one in known}) == len(known)
    assert digest(mcfo.objectives.mcfo(5)) == digest(mcfo.objectives.mcfo(5))
    before = digest(0)
    with monkeypatch.context() as patch:
        patch.setattr(jax, "__version__", "0.0")
        assert digest(0) != before
    with monkeypatch.context() as patch:
        patch.setattr(traced, "_sources", lambda: "other")
        assert digest(0) != before
    assert digest(0) == before


@pytest.mark.parametrize("unknown", [lambda x: x, OwnModel, object(), run, [run], optax.sgd(0.1)])
def test_code_that_may_change_has_no_digest(unknown):
    with pytest.raises(Unknown):
        digest(unknown)


def files_after_a_step(folder, *, model=None, **options):
    """Runs one step; the parameters after it, and the files."""
    settings = mcfo.Settings(**{"steps": 2, "batch": 2, "log_every": 1, "fixed": FIXED} | options)
    with keeping_traced(folder):
        modules = Modules(model or start()[0], start()[1])
        trainer = Trainer(mcfo.objectives.mcfo(5), modules, mcfo.stack(make_series(4)), None, settings)
    state, lines = trainer.advance(trainer.start())
    arrays = {name: np.asarray(array) for name, array in named_arrays(state).items()}
    return arrays, lines, [] if folder is None else list(folder.iterdir())


@pytest.mark.slow
def test_a_kept_step_learns_the_same_to_the_bit(tmp_path):
    usual, metrics, _ = files_after_a_step(None)
    for _ in range(2):
        found, lines, files = files_after_a_step(tmp_path)
        assert lines == metrics
        assert found.keys() == usual.keys()
        for name, array in found.items():
            np.testing.assert_array_equal(array, usual[name], strict=True)
        assert len(files) == 1


@pytest.mark.slow
def test_steps_of_unknown_code_are_not_kept(tmp_path):
    same = start()[0]
    own = OwnModel(
        initial_mean=same.initial_mean,
        initial_noise=same.initial_noise.matrix,
        transition_matrix=same.transition_matrix,
        transition_noise=same.transition_noise.matrix,
        emission_matrix=same.emission_matrix,
        emission_noise=same.emission_noise.matrix,
    )
    assert not files_after_a_step(tmp_path, model=own)[2]
    assert not files_after_a_step(tmp_path, optimizer=optax.sgd(0.01))[2]
