"""The videos to learn from, those to evaluate on, and what needs no learning."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtri

from mcfo.experiments.pendulum.videos import NOISE, SIZE, View, expected_angles, make_pendulum
from mcfo.series import Series, stack

_QUANTILES = 32
"""Of the next angle, over which a picture is averaged."""


class Problem(NamedTuple):
    """Binary videos, and of the evaluated ones the truth.

    - `train`: to learn from; `test`: some of the test set, evenly spread over it, on which everything is evaluated.
    - `gray`: the gray levels of the test videos, from 0 to 1; `angles`, `speeds`: of their pendulums.
    - `mean_picture`: of the training videos' gray levels.
    """

    train: list[Series]
    test: Series
    gray: Float[Array, "videos frames pixels"]
    angles: np.ndarray
    speeds: np.ndarray
    mean_picture: np.ndarray

    def baselines(self) -> dict[str, float]:
        """The error of predictions that need no learning: the mean picture, the binary picture before, which is all
        that a model sees, the gray one before; and of whoever knows the simulator and its true state, which no model
        sees, the picture at the expected angle and the mean picture over the angle's noise."""
        gray = np.asarray(self.gray, np.float64)
        expected = expected_angles(self.angles, self.speeds)[:, :-1]
        quantiles = ndtri((np.arange(_QUANTILES) + 0.5) / _QUANTILES)
        blurred = sum(View()(expected + NOISE * quantile).astype(float) for quantile in quantiles) / _QUANTILES
        predictions = {
            "static": self.mean_picture[None, None],
            "last observed": np.asarray(self.test.observations, np.float64)[:, :-1],
            "persistence": gray[:, :-1],
            "true state": View()(expected).reshape(gray[:, 1:].shape) / 255,
            "true state, mean": np.reshape(blurred, gray[:, 1:].shape) / 255,
        }
        return {
            name: float(np.linalg.norm(gray[:, 1:] - predicted, axis=-1).sum(-1).mean())
            for name, predicted in predictions.items()
        }


def make_problem(*, series: int, test_series: int, evaluated: int, steps: int, seed: int) -> Problem:
    """The data set of `mcfo data pendulum` with the same seed, evaluated on every so-many-th test video."""
    made = make_pendulum(series + test_series, steps, seed=seed)
    series_list = [
        Series.from_values(video.reshape(steps, SIZE**2), series_id=number)
        for number, video in enumerate(made.observations)
    ]
    gray = made.gray.reshape(-1, steps, SIZE**2) / 255
    chosen = slice(series, series + evaluated * (test_series // evaluated), test_series // evaluated)
    return Problem(
        train=series_list[:series],
        test=stack(series_list[chosen]),
        gray=jnp.asarray(gray[chosen], jnp.float32),
        angles=made.angles[chosen],
        speeds=made.speeds[chosen],
        mean_picture=gray[:series].mean((0, 1)),
    )
