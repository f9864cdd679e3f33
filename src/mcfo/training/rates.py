"""Which share of the learning rate each parameter has."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import optax


def by_width() -> optax.GradientTransformation:
    """Multiplies the updates of a weight matrix by √(2 / inputs), where that is less than one.

    Adam moves every weight by about the learning rate, so that a layer with n inputs that move together moves its
    outputs by n times as much, while its weights are of the size √(2 / n) to begin with (He et al., 2015). With the
    factor each step changes weights by the same share of their size, whatever the width: one rate does for narrow and
    wide layers. Karras et al. (2018) do the same; Yang et al. (2021) have 1/n where the width grows without bounds.
    """

    def share(updates: Any) -> Any:
        return updates * min(1.0, math.sqrt(2 / updates.shape[1])) if updates.ndim == 2 else updates

    return optax.stateless(lambda updates, parameters: jax.tree.map(share, updates))


RATES: dict[str, Callable[[], optax.GradientTransformation]] = {"equal": optax.identity, "by-width": by_width}
"""Transformations of the updates, after the optimiser's."""
