"""What a run by particles refuses before it starts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from mcfo.data.batching import Buckets
from mcfo.errors import InputError
from mcfo.gradients.rules import Reverse
from mcfo.learning.parameters import Modules, named_arrays
from mcfo.learning.settings import Settings
from mcfo.objectives.objective import Objective
from mcfo.smc.compatibility import check_arguments


def checked(
    objective: Objective, modules: Modules, data: Buckets, validation: Buckets | None, settings: Settings
) -> Objective:
    """Check the arguments of a run, and return the objective as it is learned."""
    if not isinstance(objective, Objective):
        raise InputError(f"The objective is {objective!r}. Use mcfo.objectives.mcfo(100), say.")
    check_arguments(modules.model, modules.proposal, jax.eval_shape(lambda: jax.random.key(0)))
    try:
        if settings.window is not None:
            objective = objective.with_backward(Reverse(window=settings.window))
        for batch in data:
            objective.check(modules.model, modules.proposal, batch)
    except ValueError as error:
        raise InputError(str(error)) from error
    if modules.follows:
        objective = Objective(objective.theta, None, name=objective.name, backward=objective.backward)
    dimensions = [buckets[0].observations.shape[2] for buckets in (data, validation or data)]
    if dimensions[0] != dimensions[1]:
        raise InputError(
            f"The series have {dimensions[0]} observed dimensions, but the validation data have {dimensions[1]}. Give "
            "both the same columns."
        )
    if validation is None and (settings.patience or settings.evaluate_every or settings.select == "best"):
        raise InputError(
            "patience, evaluate_every and select='best' need held-out series. Give validation=... (on the command "
            "line, --validation or --holdout), or leave them out."
        )
    for name, array in named_arrays(modules).items():
        if jnp.issubdtype(array.dtype, jnp.inexact) and not np.all(np.isfinite(np.asarray(array))):
            raise InputError(f"{name} is not finite before the first update. Start from finite parameters.")
    return objective
