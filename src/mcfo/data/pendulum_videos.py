"""Videos of a pendulum, as in the paper's second experiment: simulated, rendered, drawn as binary frames."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mcfo.errors import InputError

SIZE = 32
"""Pixels on each side."""

_STEP, _GRAVITY, _MASS, _LENGTH = 0.05, 10.0, 1.0, 1.0
NOISE = 0.1
"""The standard deviation of a step of the angle, and of the speed."""

# Gymnasium's picture: 500 pixels show the square from -2.2 to 2.2. What it draws in whole pixels has, once antialiased,
# these sizes; 11.7 of its pixels for half the rod's width is the value at which its pictures and these agree in mean.
_WHOLE = 2.2
_PIXEL = 2 * _WHOLE / 500
_HALF_WIDTH, _AXLE = 11.7 * _PIXEL, 5.5 * _PIXEL
_LUMA = np.array([0.299, 0.587, 0.114])
_ROD = 1 - float(_LUMA @ np.array([204, 77, 77])) / 255
"""How dark gymnasium's rod is; the axle is black."""
_SAMPLES = 2
"""Samples in each direction of a pixel."""
_CHUNK = 64
"""Frames that are rendered at once."""


class Pendulum(NamedTuple):
    """Series of states and of what is seen of them.

    - `angles`, `speeds`: of the pendulum, (series, steps); angle 0 points up.
    - `gray`: how dark each pixel is, (series, steps, 32, 32) in 0..255: the means of the observations, for evaluation.
    - `observations`: 0 or 1, drawn with probability gray / 255.
    """

    angles: np.ndarray
    speeds: np.ndarray
    gray: np.ndarray
    observations: np.ndarray


@dataclass(frozen=True)
class View:
    """What the camera shows.

    - `half_extent`: it shows the square from minus this to this, in lengths of the rod. 2.2 is gymnasium's whole
      picture; with 1.1 the rod fills it.
    - `contrast`: "full" stretches the gray levels so that the rod is as dark as can be; "gym" keeps its colors.
    - `renderer`: "capsule", antialiased distances to the rod, 45 times faster; "gym", gymnasium's own.
    """

    half_extent: float = 1.1
    contrast: str = "full"
    renderer: str = "capsule"

    def __post_init__(self):
        if not 0 < self.half_extent <= _WHOLE:
            raise InputError(
                f"The half extent must be positive and at most {_WHOLE}, the whole picture, but got {self.half_extent}."
            )
        for name, value, known in (
            ("contrast", self.contrast, ("full", "gym")),
            ("renderer", self.renderer, tuple(_RENDERERS)),
        ):
            if value not in known:
                raise InputError(f"The {name} is {' or '.join(map(repr, known))}, but got {value!r}.")

    def __call__(self, angles: np.ndarray) -> np.ndarray:
        """Darkness from 0 to 255 of each pixel for each angle, (*shape of the angles, 32, 32)."""
        flat = np.asarray(angles, np.float64).reshape(-1)
        darkness = _RENDERERS[self.renderer](flat, self.half_extent)
        if self.contrast == "full":
            darkness = np.minimum(darkness / _ROD, 1.0)
        # Rounded: the last bits of a sine are not the same on all machines.
        levels = np.rint(255 * darkness).astype(np.uint8)
        return levels.reshape(*np.shape(angles), SIZE, SIZE)


def simulate_pendulum(series: int, steps: int = 20, *, seed: int, view: View | None = None) -> Pendulum:
    """Simulates videos of a swinging pendulum; the same bits from the same seed.

    The speed grows by 3 g sin(angle) / (2 l) dt and the angle by the old speed times dt, both with noise N(0, 0.1²),
    dt = 0.05, g = 10, l = 1. The first angle is uniform on the circle, the first speed uniform from -1 to 1.

    **Arguments:**

    - `series`, `steps`: how many videos of how many frames.
    - `view`: what the camera shows.
    """
    if series < 1 or steps < 1:
        raise InputError(f"At least one series of one step is needed, but got {series} of {steps}.")
    states, pixels = (np.random.default_rng([seed, purpose]) for purpose in range(2))
    angles, speeds = np.empty((2, series, steps))
    angles[:, 0] = states.uniform(-math.pi, math.pi, series)
    speeds[:, 0] = states.uniform(-1.0, 1.0, series)
    noise = NOISE * states.standard_normal((2, series, steps))
    pull = 3 / (_MASS * _LENGTH**2) * _MASS * _GRAVITY * _LENGTH / 2 * _STEP
    for step in range(1, steps):
        angle, speed = angles[:, step - 1], speeds[:, step - 1]
        speeds[:, step] = speed + pull * np.sin(angle) + noise[0, :, step]
        angles[:, step] = expected_angles(angle, speed) + noise[1, :, step]
    gray = (view or View())(angles)
    drawn = pixels.integers(0, 255, gray.shape, np.uint8) < gray
    return Pendulum(angles, speeds, gray, drawn.astype(np.uint8))


def expected_angles(angles: np.ndarray, speeds: np.ndarray) -> np.ndarray:
    """The mean of the next angle, given the state."""
    return angles + _STEP * speeds


def angles_of(frames: np.ndarray) -> np.ndarray:
    """The angle at which each frame, a row of pixels, shows the rod: that of its center of mass."""
    centers = (np.arange(SIZE) + 0.5) / SIZE * 2 - 1
    frames = np.asarray(frames, np.float64).reshape(*frames.shape[:-1], SIZE, SIZE)
    return np.arctan2(-(frames @ centers).sum(-1), -(centers @ frames).sum(-1))


def _capsule(angles: np.ndarray, half_extent: float) -> np.ndarray:
    """A rod with round ends and an axle. A sample is covered as far as an edge through it leaves it inside."""
    count = SIZE * _SAMPLES
    spacing = 2 * half_extent / count
    centers = (np.arange(count) + 0.5) * spacing - half_extent
    across, up = centers[None, :], -centers[:, None]
    square = across**2 + up**2
    axle = np.clip(0.5 + (_AXLE - np.sqrt(square)) / spacing, 0, 1)
    frames = np.empty((len(angles), SIZE, SIZE))
    for start in range(0, len(angles), _CHUNK):
        some = angles[start : start + _CHUNK, None, None]
        along = up * np.cos(some) - across * np.sin(some)
        nearest = np.clip(along, 0, 1)
        distance = np.sqrt(np.maximum(square - nearest * (2 * along - nearest), 0))
        rod = np.clip(0.5 + (_HALF_WIDTH - distance) / spacing, 0, 1)
        darkness = _ROD * rod * (1 - axle) + axle
        frames[start : start + _CHUNK] = darkness.reshape(-1, SIZE, _SAMPLES, SIZE, _SAMPLES).mean((2, 4))
    return frames


def _gym(angles: np.ndarray, half_extent: float) -> np.ndarray:
    """Gymnasium's pictures, averaged over the area of each pixel."""
    import os

    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    try:
        import gymnasium
        import pygame  # noqa: F401
    except ImportError as error:
        raise InputError(
            "Gymnasium's renderer needs two packages: pip install 'mcfo[gym]'. Or use the renderer 'capsule'."
        ) from error
    environment = gymnasium.make("Pendulum-v1", render_mode="rgb_array")
    environment.reset(seed=0)
    pendulum: Any = environment.unwrapped
    pendulum.last_u = None  # with a torque it paints an arrow
    shares = _area_shares(500, half_extent)
    frames = np.empty((len(angles), SIZE, SIZE))
    for index, angle in enumerate(angles):
        pendulum.state = np.array([angle, 0.0])
        darkness = 1 - pendulum.render() @ _LUMA / 255
        frames[index] = shares @ darkness @ shares.T
    environment.close()
    return frames


def _area_shares(pixels: int, half_extent: float) -> np.ndarray:
    """How much of each wide pixel lies in each of `pixels` narrow ones, over the whole picture; rows sum to one."""
    middle, width = pixels / 2, pixels * half_extent / (_WHOLE * SIZE)
    edges = middle + width * (np.arange(SIZE + 1) - SIZE / 2)
    narrow = np.arange(pixels)
    overlap = np.minimum(edges[1:, None], narrow + 1) - np.maximum(edges[:-1, None], narrow)
    return np.maximum(overlap, 0) / width


_RENDERERS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {"capsule": _capsule, "gym": _gym}
