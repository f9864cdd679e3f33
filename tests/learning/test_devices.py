"""A batch gives the same bound and the same gradients on any number of devices."""

import json
import subprocess
import sys

import numpy as np
import pytest

SCRIPT = """
import json, sys
import jax
jax.config.update("jax_enable_x64", True)
import mcfo
mcfo.use_every_core(4)
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec as P
sys.path.insert(0, "tests")
from support.learning import FIXED, make_series, start
from mcfo.gradients.rules import DEVICES
from mcfo.learning.devices import build_mesh
from mcfo.learning.parameters import Modules, split
from mcfo.learning.batch_gradients import batch_outcome, first_trajectories, mean_over_devices
from mcfo.learning.step import compiled

learned, rest = split(Modules(*start()), FIXED)
learned = jax.tree.map(lambda array: jnp.stack([array, 1.1 * array]), learned)
data = mcfo.stack(make_series(6))
places = jnp.asarray([[0, 1, 2, 3], [5, 3, 0, 1]])
objectives = {
    "mcfo-smc": mcfo.objectives.mcfo(4),
    "others": mcfo.objectives.vsmc(4, full=True, baseline="others"),
    "mcfo-pimh": mcfo.objectives.mcfo(4, sweeps=2),
    "dreg, few for phi": mcfo.objectives.mcfo(4, phi="dreg", proposal_particles=3),
    "fisher": mcfo.objectives.mcfo(4, theta="fisher"),
    "iwae": mcfo.objectives.iwae(4),
    "aesmc": mcfo.objectives.aesmc(4),
    "nasmc": mcfo.objectives.nasmc(4),
    "rws": mcfo.objectives.rws(4),
    "climbing": mcfo.objectives.mcfo(4, theta="score-climbing", phi="score-climbing"),
}
keys = jax.random.split(jax.random.key(0), 2)
found = {}
for name in sys.argv[1:]:
    for devices in (1, 4):
        mesh = build_mesh(devices, DEVICES)

        def outcome(learned, places, keys):
            objective, paths = objectives[name], None
            if objective.keeps_trajectories:
                paths = first_trajectories(objective, Modules(*start()), (data,), keys)
            found, paths = batch_outcome(objective, learned, rest, (data,), jnp.asarray(0), places, keys, paths)
            found = mean_over_devices(found) if devices > 1 else found
            return ravel_pytree((found, paths))[0]

        program = compiled(outcome, mesh, (P(), P(None, DEVICES), P()))
        found.setdefault(name, []).append(program(learned, places, keys).tolist())
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["mcfo-smc"], marks=pytest.mark.slow),
        pytest.param(
            ["others", "mcfo-pimh", "dreg, few for phi", "fisher", "iwae", "aesmc", "nasmc", "rws", "climbing"],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["one", "the rest"],
)
def test_devices_agree(names):
    result = subprocess.run([sys.executable, "-c", SCRIPT, *names], capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    for name, (one, *others) in json.loads(result.stdout).items():
        assert np.abs(one).max() > 0.1
        for other in others:
            np.testing.assert_allclose(other, one, rtol=1e-10, atol=1e-12, err_msg=name)
