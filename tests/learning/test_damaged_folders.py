"""Run folders of which a part was damaged, replaced or removed."""

import shutil

import equinox as eqx
import jax.numpy as jnp
import optax
import pytest

from mcfo.errors import InputError, RunError
from mcfo.learning.checkpoints import Checkpoints
from mcfo.learning.parameters import Modules
from mcfo.learning.run_folder import RunFolder
from mcfo.learning.step import State
from mcfo.models import LinearGaussian
from mcfo.proposals import Bootstrap


def state(step):
    """A state of two seeds of a small model, after this number of updates."""
    modules = Modules(LinearGaussian.scalar(0.9, 1.2, emission_variance=0.1), Bootstrap())
    learned = eqx.filter(modules, eqx.is_inexact_array)
    start = State.start(learned, optax.sgd(0.1), 2)
    return eqx.tree_at(lambda one: one.step, start, jnp.asarray(step, jnp.int32))


def damage(folder, step):
    files = [path for path in (folder / str(step) / "state").rglob("*") if path.is_file()]
    assert files
    for path in files:
        path.write_bytes(path.read_bytes()[:3])


@pytest.fixture
def saved(tmp_path):
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    for step in (1, 2):
        checkpoints.save(state(step), seconds=float(step), nll_per_step=1.0)
    checkpoints.close()
    return tmp_path / "checkpoints"


def test_a_damaged_checkpoint_is_replaced_by_the_one_before(saved):
    damage(saved, 2)
    checkpoints = Checkpoints(saved)
    with pytest.warns(UserWarning, match="step 2 is damaged and is replaced: the run resumes from step 1") as caught:
        found, seconds = checkpoints.restore(state(0))
    assert "Error" not in str(caught[0].message), "no names of classes"
    assert (int(found.step), seconds) == (1, 1.0)
    assert checkpoints.steps() == [1]
    checkpoints.close()


@pytest.mark.parametrize("content", [b'{"nll', b"[" * 100_000, b'{"nll_per_step": "low"}', b"\xff"])
def test_a_damaged_score_is_left_out(saved, content):
    (saved / "2" / "metrics" / "metrics").write_bytes(content)
    checkpoints = Checkpoints(saved)
    with pytest.warns(UserWarning, match="The score of the checkpoint of step 2 is damaged and left out"):
        found, _ = checkpoints.restore(state(0))
    assert int(found.step) == 2
    checkpoints.close()


def test_no_checkpoint_is_sound(saved):
    damage(saved, 1)
    damage(saved, 2)
    checkpoints = Checkpoints(saved)
    with pytest.raises(
        InputError, match=r"those of the steps 1, 2 are damaged. Start again in another folder"
    ) as caught:
        checkpoints.restore(state(0))
    assert "Error" not in str(caught.value)
    checkpoints.close()


@pytest.mark.parametrize("leave", [shutil.rmtree, lambda path: path.rename(path.with_name("elsewhere"))])
def test_a_folder_that_is_removed_is_noticed_at_the_next_line(tmp_path, leave):
    folder = RunFolder(tmp_path / "run", {}, resume=False)
    folder.log([{"step": 1}])
    leave(tmp_path / "run")
    with pytest.raises(RunError, match="the folder was removed or renamed while the run was writing into it"):
        folder.log([{"step": 2}])
    folder.close()
    assert not (tmp_path / "run").exists()


def test_another_folder_in_its_place_is_not_written_to(tmp_path):
    folder = RunFolder(tmp_path / "run", {}, resume=False)
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    shutil.copytree(tmp_path / "elsewhere", tmp_path / "run")
    with pytest.raises(RunError, match=r"Cannot write metrics\.jsonl"):
        folder.log([{"step": 1}])
    folder.close()
