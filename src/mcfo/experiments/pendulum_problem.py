"""The videos, what is compared on them and at which size, and how well a model predicts the next frame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtri

from mcfo.data.pendulum_videos import NOISE, SIZE, View, angles_of, expected_angles, simulate_pendulum
from mcfo.experiments.runs import SWEEPS
from mcfo.inference.evaluation import evaluation_sampler, series_at_once
from mcfo.models.base import Model
from mcfo.objectives.named import aesmc, mcfo, nasmc
from mcfo.objectives.objective import Objective
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series, stack
from mcfo.smc.noise import step_key
from mcfo.smc.resampling import systematic_indices
from mcfo.smc.step import Outcome
from mcfo.smc.step_scan import step_scan
from mcfo.smc.trace import Record, State
from mcfo.types import Key, Scalar

PROPOSAL_PARTICLES = 10
FIRST_RATE = 1e-2
PAPER_STEPS = 23_000
"""Iterations after which a rate of 1e-2 that falls by 0.998 every 10 of them has come to 1e-4."""
PAPER_PARTICLES = (10, 20, 50, 100, 200, 500, 1000)
METHODS: dict[str, Callable[[int], Objective]] = {
    "aesmc": aesmc,
    "nasmc": nasmc,
    "mcfo-smc": lambda particles: mcfo(particles, proposal_particles=PROPOSAL_PARTICLES),
    "mcfo-pimh": lambda particles: mcfo(particles, proposal_particles=PROPOSAL_PARTICLES, sweeps=SWEEPS),
    "mcfo-dreg": lambda particles: mcfo(particles, phi="dreg"),
    "mcfo-lag": lambda particles: mcfo(
        particles, proposal_particles=PROPOSAL_PARTICLES, theta="fisher-lag-3", phi="path-kl-lag-3"
    ),
}
"""The paper's methods, and ours: DReG for phi, with all K particles, as it is to repair what more of them do; and for
theta and phi the weights of three steps later, from which both learn what frames tell of the latents before them."""
SCHEDULES: dict[str, Callable[[float], dict[str, float]]] = {
    "cosine": lambda last: {"alpha": last / FIRST_RATE},
    "exponential": lambda last: {"decay_rate": last / FIRST_RATE, "end_value": last},
}
"""Options with which the rate ends at the last one."""


@dataclass(frozen=True)
class Preset:
    """The size of the experiment.

    - `methods`: some of `METHODS`; `particles`: each K for theta (AESMC, NASMC and DReG: for phi too).
    - `steps`: iterations, in which the learning rate falls from 1e-2 to `last_rate`, the paper's exponentially.
    - `schedule`: how it falls. In few iterations an exponential spends most of them at rates too low to learn by; a
      cosine keeps to the high ones for longer.
    - `latent`, `traces`: of the deep model. Two latents say where the rod is, and their traces how it moves; with the
      paper's three and no traces, rules that do not go back through time hardly find the speed.
    - `series`, `test_series`, `length`: the data; `evaluated`: test videos that everything is evaluated on.
    - `evaluation_particles`: of the filter that evaluates; `evaluations`: how often it does during a run.
    - `last`: the share of these, the last ones, over which tables average.
    """

    methods: tuple[str, ...] = tuple(METHODS)
    particles: tuple[int, ...] = (10,)
    seeds: tuple[int, ...] = (0,)
    steps: int = 800
    last_rate: float = 1e-4
    schedule: str = "cosine"
    batch: int = 5
    latent: int = 2
    traces: int = 2
    series: int = 500
    test_series: int = 500
    length: int = 20
    evaluated: int = 8
    evaluation_particles: int = 1000
    evaluations: int = 5
    last: float = 0.3

    @property
    def shown(self) -> tuple[int, int]:
        """K and seed of the runs whose frames are drawn."""
        return self.particles[-1], self.seeds[0]


PRESETS = {
    "quick": Preset(),
    "long": Preset(particles=(10, 20), seeds=(0, 1)),
    "paper": Preset(
        particles=PAPER_PARTICLES, seeds=(0, 1, 2), steps=PAPER_STEPS, schedule="exponential", latent=3, traces=0,
        evaluated=500, evaluations=100, last=0.05,
    ),
}  # fmt: skip


DRAWS = 100
"""Particles, drawn from the weights, whose pictures are averaged for the predictive mean."""
_TAG = 0x6672616D
_QUANTILES = 32
"""The number of quantiles of the next angle over which a frame is averaged."""
Videos: TypeAlias = Float[Array, "videos frames pixels"]


class Problem(NamedTuple):
    """Binary videos, and of the evaluated ones the truth.

    - `train`: to learn from; `test`: some of the test set, evenly spread over it, on which everything is evaluated.
    - `gray`: the gray levels of the test videos, from 0 to 1; `angles`, `speeds`: of their pendulums.
    - `mean_frame`: of the training videos' gray levels.
    """

    train: list[Series]
    test: Series
    gray: Videos
    angles: np.ndarray
    speeds: np.ndarray
    mean_frame: np.ndarray

    def baselines(self) -> dict[str, float]:
        """The error of predictions that need no learning: the mean frame, the binary frame before, which is all
        that a model sees, the gray one before; and of whoever knows the simulator and its true state, which no model
        sees, the frame at the expected angle and the mean frame over the angle's noise."""
        gray = np.asarray(self.gray, np.float64)
        expected = expected_angles(self.angles, self.speeds)[:, :-1]
        quantiles = ndtri((np.arange(_QUANTILES) + 0.5) / _QUANTILES)
        blurred = sum(View()(expected + NOISE * quantile).astype(float) for quantile in quantiles) / _QUANTILES
        predictions = {
            "static": self.mean_frame[None, None],
            "last observed": np.asarray(self.test.observations, np.float64)[:, :-1],
            "persistence": gray[:, :-1],
            "true state": View()(expected).reshape(gray[:, 1:].shape) / 255,
            "true state, mean": np.reshape(blurred, gray[:, 1:].shape) / 255,
        }
        return {
            name: float(np.linalg.norm(gray[:, 1:] - predicted, axis=-1).sum(-1).mean())
            for name, predicted in predictions.items()
        }


def build_problem(size: Preset, seed: int) -> Problem:
    """The data set of `mcfo data pendulum` with the same seed, evaluated on every so-many-th test video."""
    videos = simulate_pendulum(size.series + size.test_series, size.length, seed=seed)
    seen, gray = (frames.reshape(-1, size.length, SIZE**2) for frames in (videos.observations, videos.gray / 255))
    series_list = [Series.from_values(video, series_id=number) for number, video in enumerate(seen)]
    every = size.test_series // size.evaluated
    chosen = slice(size.series, size.series + size.evaluated * every, every)
    return Problem(
        train=series_list[: size.series],
        test=stack(series_list[chosen]),
        gray=jnp.asarray(gray[chosen], jnp.float32),
        angles=videos.angles[chosen],
        speeds=videos.speeds[chosen],
        mean_frame=gray[: size.series].mean((0, 1)),
    )


class Followed(eqx.Module):
    """A filter's way along one video. Predictions are for frames 2 to T, from those before each.

    - `record`: how every step of the filter went.
    - `at_mean`: the picture at the predicted mean latent, Σ_i v_i E[z_t | z_t-1^i].
    - `mean`: the mean of the pictures at predicted latents, which is the prediction of the model.
    - `filtered`, `predicted`: a few latents of each frame given all frames up to it, and given those before it.
    """

    record: Record
    at_mean: Float[Array, "later pixels"]
    mean: Float[Array, "later pixels"]
    filtered: Float[Array, "frames draws latent"]
    predicted: Float[Array, "later draws latent"]


def follow(
    model: Model, proposal: Proposal, video: Series, *, particles: int, draws: int = DRAWS, key: Key
) -> Followed:
    """Filters a video and predicts each frame from those before it."""

    def drawn(state: State, key: Key) -> Array:
        return state.latents[systematic_indices(state.log_weights, draws, key=key)]

    def picture(latent: Array, frame: Frame) -> Array:
        return model.emission(None, latent, frame.inputs).mean  # pyright: ignore[reportAttributeAccessIssue]

    def visit(before: State | None, outcome: Outcome, frame: Frame, extra: None) -> tuple[Any, ...]:
        of_choice, of_move, of_next = jax.random.split(jax.random.fold_in(step_key(key, frame), _TAG), 3)
        # Nothing comes before the first frame: its row of predictions is cut off below.
        state = outcome.state if before is None else before
        means = jax.vmap(lambda memory: model.transition(memory, frame.inputs).mean)(state.memory)  # pyright: ignore[reportAttributeAccessIssue]
        at_mean = picture(jnp.exp(state.log_weights) @ means, frame)
        moved = jax.vmap(lambda latent, key: model.transition(latent, frame.inputs).sample(key))(
            drawn(state, of_choice), jax.random.split(of_move, draws)
        )
        mean = jnp.mean(jax.vmap(lambda latent: picture(latent, frame))(moved), axis=0)
        return outcome.record, drawn(outcome.state, of_next), at_mean, mean, moved

    _, found = step_scan(evaluation_sampler(particles), model, proposal, video, visit, key=key)
    record, filtered, at_mean, mean, moved = found
    return Followed(record, at_mean[1:], mean[1:], filtered, moved[1:])


@eqx.filter_jit
def follow_all(model: Model, proposal: Proposal, videos: Series, *, particles: int, key: Key) -> Followed:
    """Each of several videos, one at a time; what is found has one more axis in front."""
    return jax.lax.map(lambda video: follow(model, proposal, video, particles=particles, key=key), videos)


def scores(
    model: Model, proposal: Proposal, videos: Series, gray: Videos, *, particles: int, key: Key
) -> dict[str, Scalar]:
    """Means over videos: `prediction`, the sum over t = 2..T of ‖picture at the predicted mean latent - gray‖; the same
    of the predictive mean, `prediction_by_mean`; `nll`, of a whole video; and `ess_at_test`, zero where it failed."""

    def one(video_and_gray: Any) -> dict[str, Scalar]:
        video, gray = video_and_gray
        found = follow(model, proposal, video, particles=particles, key=key)

        def distance(predicted: Array) -> Scalar:
            return jnp.sum(jnp.sqrt(jnp.sum((predicted - gray[1:]) ** 2, axis=-1)))

        return {
            "prediction": distance(found.at_mean),
            "prediction_by_mean": distance(found.mean),
            "nll": -jnp.sum(found.record.log_evidence),
            "ess_at_test": jnp.mean(jnp.where(found.record.finite, found.record.ess, 0.0)),
        }

    found = jax.lax.map(one, (videos, gray), batch_size=series_at_once(videos, particles))
    return jax.tree.map(jnp.mean, found)


def motion_foreseen(predicted: np.ndarray, angles: np.ndarray, speeds: np.ndarray) -> float:
    """Σ d̂ d / Σ d²: d, how far the simulator expects the rod to turn until the next frame, and d̂, how far it turns
    from where it is to where the prediction shows it. One for whoever knows the speed, zero for a frame that stays.

    **Arguments:**

    - `predicted`: frames of frames 2 to T, (videos, later, pixels); `angles`, `speeds`: (videos, frames).
    """
    expected = (expected_angles(angles, speeds) - angles)[:, :-1]
    turned = np.angle(np.exp(1j * (angles_of(predicted) - angles[:, :-1])))
    return float(np.sum(turned * expected) / np.sum(expected**2))
