"""How much of a pendulum's motion is foreseen: whether a model has found its speed, which no picture shows."""

from __future__ import annotations

import numpy as np

from mcfo.experiments.pendulum.videos import SIZE, expected_angles

_PLACES = (np.arange(SIZE) + 0.5) / SIZE * 2 - 1


def angles_of(pictures: np.ndarray) -> np.ndarray:
    """The angle at which each picture, a row of pixels, shows the rod: that of its center of mass."""
    pictures = np.asarray(pictures, np.float64).reshape(*pictures.shape[:-1], SIZE, SIZE)
    across, down = (pictures @ _PLACES).sum(-1), (_PLACES @ pictures).sum(-1)
    return np.arctan2(-across, -down)


def motion_foreseen(predicted: np.ndarray, angles: np.ndarray, speeds: np.ndarray) -> float:
    """Σ d̂ d / Σ d²: d, how far the simulator expects the rod to turn until the next frame, and d̂, how far it turns
    from where it is to where the prediction shows it. One for whoever knows the speed, zero for a picture that stays.

    **Arguments:**

    - `predicted`: pictures of frames 2 to T, (videos, later, pixels); `angles`, `speeds`: (videos, frames).
    """
    expected = (expected_angles(angles, speeds) - angles)[:, :-1]
    turned = np.angle(np.exp(1j * (angles_of(predicted) - angles[:, :-1])))
    return float(np.sum(turned * expected) / np.sum(expected**2))
