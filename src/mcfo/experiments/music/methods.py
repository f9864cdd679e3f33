"""What is compared, on which data, and at which size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from mcfo.errors import InputError, nearest
from mcfo.objectives.named import fivo, iwae, mcfo, nasmc
from mcfo.objectives.objective import Objective

SWEEPS = 5
METHODS: dict[str, Callable[[int], Objective]] = {
    "mcfo-smc": mcfo,
    "mcfo-pimh": lambda particles: mcfo(particles, sweeps=SWEEPS),
    "mcfo-dreg": lambda particles: mcfo(particles, phi="dreg"),
    "fivo": fivo,
    "iwae": iwae,
    "nasmc": nasmc,
}
"""The paper's methods, and ours: DReG for phi."""


class Course(NamedTuple):
    """How one data set is learned, by every method alike.

    - `steps`, `batch`, `rate`: updates of Adam, pieces in each, and the learning rate, which falls to zero by a cosine.
    - `window`: how many steps a gradient goes back.
    - `transposed`: pieces are learned in all keys so many semitones up and down.
    - `decay`: weights shrink by this times the learning rate at each update, as in AdamW.
    - `evaluations`: how often a run is evaluated on the validation split; the best of them is what is kept of it.
    """

    steps: int
    batch: int
    rate: float
    window: int | None = None
    transposed: int = 0
    decay: float = 0.0
    evaluations: int = 20


class Job(NamedTuple):
    """One run."""

    data: str
    method: str
    particles: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.data}-{self.method}-{self.particles}-{self.seed}"


@dataclass(frozen=True)
class Preset:
    """The size of the experiment.

    - `courses`: how each data set is learned; `methods`: some of `METHODS`; `particles`: each K.
    - `validation_particles`: of the filter that evaluates a run on the validation split.
    - `test_particles`, `test_runs`: of the filter that evaluates what was kept, and how often it does.
    """

    courses: tuple[tuple[str, Course], ...]
    methods: tuple[str, ...] = ("mcfo-smc", "fivo", "iwae", "mcfo-dreg")
    particles: tuple[int, ...] = (10,)
    seeds: tuple[int, ...] = (0,)
    validation_particles: int = 50
    test_particles: int = 500
    test_runs: int = 5

    def __post_init__(self):
        for method in self.methods:
            if method not in METHODS:
                raise InputError(f"There is no method {method!r}. {nearest(method, METHODS)}")

    def jobs(self) -> dict[Job, Objective]:
        """The objective of each run."""
        return {
            Job(data, method, particles, seed): METHODS[method](particles)
            for data, _ in self.courses
            for seed in self.seeds
            for particles in self.particles
            for method in self.methods
        }


def cost(job: Job, course: Course, mean_length: float) -> float:
    """How long a run takes, about."""
    passes = {"mcfo-pimh": SWEEPS + 3}.get(job.method, 3)
    return course.steps * course.batch * mean_length * job.particles * passes


_JSB = Course(steps=1200, batch=16, rate=2e-3)
_JSB_DECAYED = Course(steps=1600, batch=16, rate=2e-3, decay=0.3)
_NOTTINGHAM = Course(steps=800, batch=16, rate=3e-3, evaluations=8)
_MUSEDATA = Course(steps=2000, batch=16, rate=1e-3, window=200, evaluations=8)
_PIANO_MIDI = Course(steps=1000, batch=8, rate=1e-3, window=200)

PRESETS: dict[str, Preset] = {
    "quick": Preset((("jsb", _JSB),)),
    "long": Preset(
        (("jsb", _JSB_DECAYED), ("nottingham", _NOTTINGHAM)),
        methods=("mcfo-smc", "mcfo-pimh", "fivo", "iwae", "mcfo-dreg"),
        test_runs=3,
    ),
    "paper": Preset(
        (("jsb", _JSB_DECAYED), ("nottingham", _NOTTINGHAM), ("musedata", _MUSEDATA), ("piano-midi", _PIANO_MIDI)),
        methods=tuple(METHODS),
        particles=(10, 20),
        test_runs=10,
    ),
}
