"""Optimizers, their schedules and their rates for single parameters, by name."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import jax
import optax


def by_width() -> optax.GradientTransformation:
    """Multiply the updates of a weight matrix by √(2 / inputs), where that is less than one.

    Adam changes every weight by about the learning rate, so that n inputs that change together change the outputs of a
    layer n times as much, while its initial weights have size √(2 / n) (He et al., 2015). With the factor, each step
    changes weights by the same share of their size: one rate serves narrow and wide layers. Karras et al. (2018) do the
    same; Yang et al. (2021) derive 1/n in the limit of infinite width.
    """

    def share(updates: Any) -> Any:
        return updates * min(1.0, math.sqrt(2 / updates.shape[1])) if updates.ndim == 2 else updates

    return optax.stateless(lambda updates, parameters: jax.tree.map(share, updates))


RATES: dict[str, Callable[[], optax.GradientTransformation]] = {"equal": optax.identity, "by-width": by_width}
"""Transformations of the updates, applied after the optimizer."""


SCHEDULES: dict[str, Callable[..., Any]] = {
    "constant": optax.constant_schedule,
    "cosine": optax.cosine_decay_schedule,
    "exponential": optax.exponential_decay,
    "linear": optax.linear_schedule,
    "warmup-cosine": optax.warmup_cosine_decay_schedule,
}
"""Learning-rate schedules; `schedule_options` are the arguments of the optax function."""

_NEED_MORE = {"lbfgs", "polyak_sgd", "noisy_sgd", "dpsgd"}
"""Optimizers that need more than gradients: the loss itself, of which there is only a noisy estimate, or keys."""


def optimizers() -> dict[str, Callable[..., optax.GradientTransformation]]:
    """Return the optimizers of optax that need only a learning rate and gradients, by name."""
    return {
        name: optimizer
        for name, optimizer in vars(optax).items()
        if inspect.isfunction(optimizer)
        and next(iter(inspect.signature(optimizer).parameters), None) == "learning_rate"
        and not name.startswith(("_", "scale_by_"))
        and name not in _NEED_MORE
    }
