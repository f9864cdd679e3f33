"""The videos to learn from, those to evaluate on, and what needs no learning."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mcfo.data.pendulum import SIZE, View, expected_angles, make_pendulum
from mcfo.sequences import Sequence, stack


class Problem(NamedTuple):
    """Binary videos, and of the evaluated ones the truth.

    - `train`: to learn from; `test`: some of the test set, evenly spread over it, on which everything is evaluated.
    - `grey`: the grey levels of the test videos, from 0 to 1; `angles`, `speeds`: of their pendulums.
    - `mean_picture`: of the training videos' grey levels.
    """

    train: list[Sequence]
    test: Sequence
    grey: Float[Array, "videos frames pixels"]
    angles: np.ndarray
    speeds: np.ndarray
    mean_picture: np.ndarray

    def baselines(self) -> dict[str, float]:
        """The error of predictions that need no learning: the mean picture, the binary picture before, which is all
        that a model sees, the grey one before, and the picture at the expected angle of the simulator, whose true
        state no model sees."""
        grey = np.asarray(self.grey, np.float64)
        expected = View()(expected_angles(self.angles, self.speeds)[:, :-1]) / 255
        predictions = {
            "static": self.mean_picture[None, None],
            "last observed": np.asarray(self.test.observations, np.float64)[:, :-1],
            "persistence": grey[:, :-1],
            "true state": expected.reshape(grey[:, 1:].shape),
        }
        return {
            name: float(np.linalg.norm(grey[:, 1:] - predicted, axis=-1).sum(-1).mean())
            for name, predicted in predictions.items()
        }


def make_problem(*, series: int, test_series: int, evaluated: int, steps: int, seed: int) -> Problem:
    """The data set of `mcfo data pendulum` with the same seed, evaluated on every so-many-th test video."""
    made = make_pendulum(series + test_series, steps, seed=seed)
    sequences = [
        Sequence.from_values(video.reshape(steps, SIZE**2), number=number)
        for number, video in enumerate(made.observations)
    ]
    grey = made.grey.reshape(-1, steps, SIZE**2) / 255
    chosen = slice(series, series + evaluated * (test_series // evaluated), test_series // evaluated)
    return Problem(
        train=sequences[:series],
        test=stack(sequences[chosen]),
        grey=jnp.asarray(grey[chosen], jnp.float32),
        angles=made.angles[chosen],
        speeds=made.speeds[chosen],
        mean_picture=grey[:series].mean((0, 1)),
    )
