"""The VRNN with the paper's sizes: its training step against PyTorch, its evaluation against bare multiplications.

    python benchmarks/vrnn.py --torch path/to/python --out vrnn.json

A training step is the loss, the gradients and an update by Adam, as `fit` runs it, on one device and on one for each
core: K = 10, rolls of 200 steps. With the Python of an environment that has PyTorch (`pip install torch==2.13.0 numpy`)
the same model as an eager loop is measured beside, at one thread and at two; before, both are given the same random
numbers and must agree in log-evidence and gradients. An evaluation has K = 500, eight rolls of 100 steps. Times are
medians of interleaved repeats in one run; ratios are what counts, because machines are noisy.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from rich.console import Console
from rich.table import Table

import mcfo
from mcfo.catalogue.registry import build
from mcfo.gradients.rules import DEVICES
from mcfo.inference.evaluation import evaluation_sampler, series_scores
from mcfo.learning.devices import build_mesh, cores, replicate_on
from mcfo.learning.parameters import Modules, named_arrays
from mcfo.learning.step import compiled
from mcfo.learning.trainer import Trainer
from mcfo.smc.noise import step_keys
from mcfo.smc.step import inherit
from mcfo.smc.step_scan import frames

KEYS, PARTICLES, STEPS = 88, 10, 200
HIDDEN = LATENT = UNITS = 64
BATCHES = (4, 16)
OBJECTIVES = {"mcfo": mcfo.objectives.mcfo(PARTICLES), "aesmc": mcfo.objectives.aesmc(PARTICLES)}
CHECKED_ROLLS, CHECKED_STEPS = 4, 50
EVALUATED_ROLLS, EVALUATED_STEPS, EVALUATED_PARTICLES = 8, 100, 500
LAYERS = {
    "prior": ((HIDDEN, UNITS), (UNITS, 2 * LATENT)),
    "proposal": ((HIDDEN + UNITS, UNITS), (UNITS, 2 * LATENT)),
    "latent encoder": ((LATENT, UNITS), (UNITS, UNITS)),
    "emission": ((HIDDEN + UNITS, UNITS), (UNITS, KEYS)),
    "LSTM": ((2 * UNITS, 4 * HIDDEN), (HIDDEN, 4 * HIDDEN)),
}
"""What every particle of every step is multiplied by."""

Cases = dict[str, Callable[[], object]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9, help="interleaved repeats")
    parser.add_argument("--torch", type=Path, help="the Python of an environment that has PyTorch")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="of PyTorch")
    parser.add_argument("--out", type=Path, help="a JSON file for the results")
    arguments = parser.parse_args()
    mcfo.use_every_core()
    console = Console()
    modules, data = networks(), rolls()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        peer = None
        if arguments.torch is not None:
            peer = Peer(arguments.torch, arguments.threads, Path(folder), modules, data)
        if peer is not None:
            found["agreement"] = {name: agreement(console, peer, name, modules, data) for name in OBJECTIVES}
        found["training"] = [
            training(console, name, batch, modules, data, peer, arguments.repeats)
            for name in OBJECTIVES
            for batch in BATCHES
        ]
        if peer is not None:
            peer.close()
    found["evaluation"] = [evaluation(console, devices, modules, data, arguments.repeats) for devices in counts()]
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(found, indent=2) + "\n")


def counts() -> list[int]:
    """Of devices: one, and one for each core."""
    return sorted({1, cores()})


def rolls(count: int = max(BATCHES), steps: int = STEPS) -> mcfo.Series:
    values = np.random.default_rng(0).random((count, steps, KEYS)) < 0.05
    return mcfo.stack([mcfo.Series.from_values(one.astype(np.int32), series_id=n) for n, one in enumerate(values)])


def part(data: mcfo.Series, count: int, steps: int) -> mcfo.Series:
    """The first rolls, up to a step."""
    some = jax.tree.map(lambda array: array[:count], data)
    return eqx.tree_at(lambda s: s.observations, some, some.observations[:, :steps])


def networks() -> Modules:
    one = jax.tree.map(lambda array: array[0], rolls())
    start = build("vrnn", [one], {"latent": LATENT, "hidden": HIDDEN, "units": UNITS})
    return Modules(start.model, start.proposal)


class Peer:
    """A PyTorch process that begins with our networks, our rolls and our random numbers."""

    def __init__(self, python: Path, threads: list[int], folder: Path, modules: Modules, data: mcfo.Series):
        self.threads, self._folder = threads, folder
        start = folder / "start.npz"
        noise, offsets = random_numbers(modules, part(data, CHECKED_ROLLS, CHECKED_STEPS))
        arrays = {name: np.asarray(array) for name, array in named_arrays(modules).items()}
        values = np.asarray(data.observations, np.float32)
        np.savez(start, rolls=values, noise=noise, offsets=offsets, **arrays)  # pyright: ignore[reportArgumentType]
        program = Path(__file__).parent / "peers" / "torch_vrnn.py"
        self._process = subprocess.Popen(
            [str(python), str(program), str(start)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, *words: object) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(*words, file=self._process.stdin, flush=True)
        return self._process.stdout.readline()

    def gradients(self, objective: str) -> dict[str, np.ndarray]:
        """At the given random numbers; and the log-evidence of each roll."""
        file = self._folder / f"{objective}.npz"
        self.ask("check", objective, file)
        return dict(np.load(file))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def random_numbers(modules: Modules, data: mcfo.Series) -> tuple[np.ndarray, np.ndarray]:
    """The noise of all particles and the offset of the resampling that our filter draws; time is in front."""

    def one(series: mcfo.Series) -> Any:
        steps = frames(modules.proposal, series)
        keys = step_keys(jax.random.key(0), steps.series_id, steps.time)
        noise = jax.vmap(lambda key: jax.random.normal(key, (PARTICLES, LATENT)))(keys.noise)
        return noise, jax.vmap(jax.random.uniform)(keys.resampling)

    noise, offsets = jax.vmap(one, out_axes=1)(data)
    return np.asarray(noise), np.asarray(offsets)


def agreement(console: Console, peer: Peer, name: str, modules: Modules, data: mcfo.Series) -> dict[str, float]:
    """How far ours and PyTorch's are apart where all random numbers are the same."""
    some = part(data, CHECKED_ROLLS, CHECKED_STEPS)

    def loss(modules: Modules):
        return OBJECTIVES[name].loss(modules.model, modules.proposal, some, key=jax.random.key(0))

    (_, run), ours = eqx.filter_jit(eqx.filter_value_and_grad(loss, has_aux=True))(modules)
    theirs = peer.gradients(name)
    evidence = np.asarray(run.log_evidence)
    of_evidence = np.max(np.abs(evidence - theirs.pop("log_evidence")) / np.abs(evidence))
    gradients = {key: np.asarray(array) for key, array in named_arrays(ours).items() if key in theirs}
    assert gradients.keys() == theirs.keys()
    of_gradients = max(np.linalg.norm(one - theirs[key]) / np.linalg.norm(one) for key, one in gradients.items())
    console.print(
        f"{name} and PyTorch with the same random numbers: log-evidence differs by {of_evidence:.1e} of itself, the "
        f"worst of {len(gradients)} gradients by {of_gradients:.1e}"
    )
    if of_evidence > 1e-4 or of_gradients > 1e-3:
        raise SystemExit(f"{name} and its peer in PyTorch do not compute the same.")
    return {"log_evidence": float(of_evidence), "gradients": float(of_gradients)}


def interleaved(cases: Cases, repeats: int) -> dict[str, list[float]]:
    """Seconds of each case; a case that returns a number has measured itself."""
    spent: dict[str, list[float]] = {name: [] for name in cases}
    for repeat in range(repeats + 1):
        for name, case in cases.items():
            begun = time.perf_counter()
            found = jax.block_until_ready(case())
            seconds = found if isinstance(found, float) else time.perf_counter() - begun
            if repeat:  # the first one compiles
                spent[name].append(seconds)
    return spent


def training(
    console: Console, name: str, batch: int, modules: Modules, data: mcfo.Series, peer: Peer | None, repeats: int
) -> dict[str, Any]:
    cases: Cases = {_devices(count): updates(name, batch, modules, data, count) for count in counts()}
    if peer is not None:
        for threads in peer.threads:
            cases[f"PyTorch, threads: {threads}"] = lambda threads=threads: float(peer.ask(name, batch, threads))
    spent = interleaved(cases, repeats)
    medians = {case: float(np.median(values)) for case, values in spent.items()}
    theirs = min((medians[case] for case in medians if case.startswith("PyTorch")), default=np.nan)
    ratios = {case: theirs / seconds for case, seconds in medians.items()}
    table = Table(
        title=f"A training step of {name}, {batch} rolls, T = {STEPS}, K = {PARTICLES}",
        caption="medians of interleaved runs",
    )
    _fill(table, spent, {"times as fast as PyTorch at its best": {case: f"{ratios[case]:.2f}" for case in cases}})
    console.print(table)
    return {"objective": name, "batch": batch, "seconds": medians, "times_as_fast_as_torch": ratios}


def updates(name: str, batch: int, modules: Modules, data: mcfo.Series, devices: int) -> Callable[[], object]:
    """One update after the other, by the code that `fit` runs."""
    settings = mcfo.Settings(
        steps=10**6,
        batch=batch,
        learning_rate=1e-3,
        fixed=("model.center", "proposal.center"),
        log_every=1,
        devices=devices,
    )
    trainer = Trainer(OBJECTIVES[name], modules, part(data, batch, STEPS), None, settings)
    state = [trainer.start()]

    def update() -> object:
        state[0], _ = trainer.advance(state[0])
        return state[0]

    return update


def evaluation(
    console: Console, devices: int, modules: Modules, data: mcfo.Series, repeats: int
) -> dict[str, float | int]:
    """The time of an evaluation, and of some of what it consists of, each in a scan of its own."""
    batch = part(data, EVALUATED_ROLLS, EVALUATED_STEPS)
    parts = {
        "evaluation": lambda batch: series_scores(
            evaluation_sampler(EVALUATED_PARTICLES), modules.model, modules.proposal, batch, key=jax.random.key(0)
        ),
        "bare multiplications": bare,
        "random numbers": random_alone,
        "gathers": gathers_alone,
    }
    mesh = build_mesh(devices, DEVICES)
    batch = replicate_on(mesh, batch)
    cases: Cases = {name: partial(shared(function, mesh), batch) for name, function in parts.items()}
    spent = interleaved(cases, repeats)
    medians = {name: float(np.median(values)) for name, values in spent.items()}
    whole, least = medians["evaluation"], medians["bare multiplications"]
    table = Table(
        title=f"An evaluation, {EVALUATED_ROLLS} rolls, T = {EVALUATED_STEPS}, K = {EVALUATED_PARTICLES}, "
        f"{_devices(devices)}",
        caption=f"medians of interleaved runs; {1e-9 * operations() / least:.0f} GFLOP/s in the bare multiplications",
    )
    medians["the rest"] = 2 * whole - sum(medians.values())
    _fill(table, spent, {"of the bare": {name: f"{seconds / least:.2f}" for name, seconds in medians.items()}})
    table.add_row("the rest", f"{1e3 * medians['the rest']:.0f}", "", f"{medians['the rest'] / least:.2f}")
    console.print(table)
    return {"devices": devices, "ratio": whole / least, **medians}


def shared(function: Callable[[mcfo.Series], Any], mesh: Any) -> Callable[[mcfo.Series], Any]:
    """The function of a batch whose rolls the devices share."""

    def total(batch: mcfo.Series) -> Any:
        sums = jax.tree.map(jnp.sum, function(batch))
        return jax.lax.psum(sums, DEVICES) if mesh.size > 1 else sums

    return compiled(total, mesh, (PartitionSpec(DEVICES),))


def operations() -> int:
    rows = EVALUATED_ROLLS * EVALUATED_STEPS * EVALUATED_PARTICLES
    return 2 * rows * sum(before * after for shapes in LAYERS.values() for before, after in shapes)


def bare(batch: mcfo.Series) -> jax.Array:
    """The multiplications of all particles, step by step, each by the result of the one before."""
    rows = len(batch.observations) * EVALUATED_PARTICLES
    shapes = [shape for network in LAYERS.values() for shape in network]
    keys = jax.random.split(jax.random.key(0), len(shapes))
    weights = [jax.random.normal(key, shape) / np.sqrt(shape[0]) for key, shape in zip(keys, shapes, strict=True)]

    def body(values, number):
        for weight in weights:
            width = values.shape[1]
            values = values[:, : len(weight)] if width >= len(weight) else jnp.concatenate([values, values], 1)
            values = values[:, : len(weight)] @ weight
        return values[:, :HIDDEN] + 1e-6 * number, None

    start = jnp.ones((rows, HIDDEN))
    return jax.lax.scan(body, start, jnp.arange(EVALUATED_STEPS, dtype=jnp.float32))[0]


def random_alone(batch: mcfo.Series) -> jax.Array:
    """The noise of all particles and the offset of the resampling, from each step's own key."""
    keys = jax.random.split(jax.random.key(0), (EVALUATED_STEPS, len(batch.observations)))

    def body(total, keys):
        both = jax.vmap(lambda key: jax.random.split(key, 2))(keys)
        noise = jax.vmap(lambda key: jax.random.normal(key, (EVALUATED_PARTICLES, LATENT)))(both[:, 0])
        return total + noise + jax.vmap(jax.random.uniform)(both[:, 1])[:, None, None], None

    start = jnp.zeros((len(batch.observations), EVALUATED_PARTICLES, LATENT))
    return jax.lax.scan(body, start, keys)[0]


def gathers_alone(batch: mcfo.Series) -> Any:
    """The ancestors' memories, output and cell of the LSTM, for all particles."""
    shape = len(batch.observations), EVALUATED_PARTICLES
    ancestors = jnp.sort(jax.random.randint(jax.random.key(0), (EVALUATED_STEPS, *shape), 0, EVALUATED_PARTICLES))

    def body(memory, ancestors):
        return jax.vmap(inherit)(memory, ancestors), None

    memory = jax.random.normal(jax.random.key(1), (*shape, HIDDEN))
    return jax.lax.scan(body, (memory, memory + 1), ancestors)[0]


def _devices(count: int) -> str:
    return f"devices: {count}"


def _fill(table: Table, spent: dict[str, list[float]], others: dict[str, dict[str, str]]) -> None:
    for title in ("", "ms", "middle half, ms", *others):
        table.add_column(title, justify="right" if title else "left")
    for name, values in spent.items():
        low, middle, high = np.percentile(values, [25, 50, 75]) * 1e3
        table.add_row(name, f"{middle:.0f}", f"{low:.0f} to {high:.0f}", *(other[name] for other in others.values()))


if __name__ == "__main__":
    main()
