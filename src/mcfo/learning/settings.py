"""How a model is learned: one frozen record, checked when it is built, and the optimizer that it names."""

from __future__ import annotations

import dataclasses
import inspect
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from mcfo.errors import InputError, nearest
from mcfo.learning.optimizers import RATES, SCHEDULES, optimizers
from mcfo.learning.prior_families import prior_text, read_prior
from mcfo.validation import float_dtype


@dataclass(frozen=True)
class Settings:
    """The settings of a training run: all that is not data, model, proposal or objective.

    **Arguments:**

    - `steps`: the number of updates, as a limit.
    - `tolerance`: a run ends when twice as many updates gain less than this many nats of log-likelihood on all series,
      by more than the noise of the comparison: see [`looks`][mcfo.learning.looks]. With 0 it makes all its updates.
    - `batch`: the number of series in each update; all of them if there are fewer.
    - `seeds`: one run for each, in one program. A seed determines the order of the data and all random numbers.
    - `optimizer`: the name of an optimizer in optax, with `optimizer_options`; or an optax transformation with a
      learning rate of its own.
    - `learning_rate`, `schedule`, `schedule_options`: the rate, and how it changes over the steps: `"cosine"` decays to
      zero at the last step by default.
    - `rates`: "equal", the same rate for every parameter, or "by-width": the rate times √(2 / n) for a matrix with n
      columns (the inputs of a layer), for networks with wide layers.
    - `clip`: the largest global norm of a gradient; larger gradients are scaled down to it.
    - `fixed`: parameters that are not learned, as dotted paths: `("model.initial_noise", "proposal.noise")`. A
      [`LocallyOptimal`][] proposal that is fixed as a whole, `"proposal"`, follows the model: it is optimal for the
      parameters of every update.
    - `log_every`: the number of updates that one line of the metrics averages.
    - `watch_every`: updates between calls of `watch`, a multiple of `log_every`; by default one call for each line.
    - `evaluate_every`: updates between evaluations on the validation data (a twentieth of the steps by default).
    - `evaluation_particles`: the number of particles of evaluations; by default that of the objective.
    - `patience`: the number of evaluations without improvement after which a run stops; None never stops early.
    - `average`: the share of the steps, at the end, over which the parameters are averaged.
    - `select`: which parameters are returned: "best" on the validation data, "average", or "last". By default
      "best" with validation data and "average" without.
    - `devices`: how many devices share a batch; by default the largest number that divides it.
    - `window`: how many steps a gradient that crosses time goes back, `Reverse(window=...)`; None leaves the objective
      unchanged.
    - `buckets`: the largest number of groups of similar lengths, so that each update pads little; each group has a
      program of its own. By default up to 4, where they save time.
    - `priors`: priors of parameters as people mean them, a text or a distribution of numpyro by name:
      `{"emission_noise": "half-normal:1"}`. What is found is then the mode of their posterior density (MAP).
    - `standardize`: whether models that are the same in any unit are learned in standard units, so that neither the
      unit nor the offset of the data changes what is found. What is returned has the unit of the data.
    """

    steps: int = 2000
    batch: int = 10
    seeds: tuple[int, ...] = (0,)
    optimizer: Any = "adam"
    learning_rate: float | int = 0.01
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    schedule: str = "constant"
    schedule_options: Mapping[str, Any] = field(default_factory=dict)
    rates: str = "equal"
    clip: float | int | None = None
    fixed: tuple[str, ...] = ()
    log_every: int = 10
    watch_every: int | None = None
    evaluate_every: int | None = None
    evaluation_particles: int | None = None
    patience: int | None = None
    average: float | int = 0.1
    select: str | None = None
    devices: int | None = None
    window: int | None = None
    buckets: int | None = None
    priors: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float | int = 0.1
    standardize: bool = True

    def __post_init__(self):
        optional = ("watch_every", "evaluate_every", "evaluation_particles", "patience", "devices", "window", "buckets")
        for name in ("steps", "batch", "log_every", *optional):
            if name not in optional or getattr(self, name) is not None:
                _require_whole(name, getattr(self, name), 1)
        if (self.watch_every or self.log_every) % self.log_every:
            raise InputError(
                f"watch_every is {self.watch_every}, but a multiple of log_every, {self.log_every}, is wanted. Change "
                "one of them."
            )
        try:
            seeds = tuple(operator.index(seed) for seed in np.atleast_1d(np.asarray(self.seeds)).tolist())
        except TypeError as error:
            raise InputError(f"The seeds must be whole numbers, but got {self.seeds!r}.") from error
        object.__setattr__(self, "seeds", seeds)
        if not seeds or len(set(seeds)) < len(seeds):
            raise InputError(f"The seeds must be different numbers, at least one, but got {seeds}.")
        for seed in seeds:
            _require_whole("seed", seed, 0, 2**31 - 1)
        object.__setattr__(self, "fixed", (self.fixed,) if isinstance(self.fixed, str) else tuple(self.fixed))
        if not (isinstance(self.average, int | float) and 0 <= self.average <= 1):
            raise InputError(f"average is a share of the steps, from 0 to 1, but got {self.average!r}.")
        if not (isinstance(self.tolerance, int | float) and 0 <= self.tolerance < math.inf):
            raise InputError(f"tolerance is a number of nats, or 0 to make all updates, but got {self.tolerance!r}.")
        if self.clip is not None and not (isinstance(self.clip, int | float) and 0 < self.clip < math.inf):
            raise InputError(f"clip is a positive norm, or None, but got {self.clip!r}.")
        for name in ("optimizer_options", "schedule_options"):
            for option, value in getattr(self, name).items():
                _require_data(option, value)
        for name, prior in self.priors.items():
            read_prior(prior, name)
        if self.select not in (None, "best", "average", "last"):
            raise InputError(f"select is 'best', 'average' or 'last', but got {self.select!r}.")
        _try(self.transformation(), self.optimizer)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Settings:
        """Build settings from keywords; an unknown keyword is refused with the nearest known one."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in options:
            if name not in known:
                raise InputError(f"There is no setting {name!r}. {nearest(name, known)}")
        return cls(**options)

    @property
    def evaluation_interval(self) -> int:
        """The number of steps between evaluations, a multiple of `log_every`."""
        wanted = self.evaluate_every or max(1, self.steps // 20)
        return self.log_every * max(1, round(wanted / self.log_every))

    @property
    def averaged_from(self) -> int:
        """The first step whose parameters enter the average."""
        return self.steps - max(1, round(self.steps * self.average))

    def transformation(self) -> optax.GradientTransformation:
        """Build the optimizer, with its schedule and clipping."""
        optimizer = self.optimizer
        if isinstance(optimizer, str):
            optimizer = self._named_optimizer()
        elif not isinstance(optimizer, optax.GradientTransformation):
            raise InputError(
                f"The optimizer is {optimizer!r}, but a name ('adam') or an optax transformation (optax.adam(0.01)) is "
                "wanted."
            )
        elif self.schedule != "constant" or self.schedule_options or self.optimizer_options:
            raise InputError(
                "An optax transformation has its own rate and options. Leave out schedule, schedule_options and "
                "optimizer_options, or name the optimizer."
            )
        if self.rates not in RATES:
            raise InputError(f"There are no rates {self.rates!r}. {nearest(self.rates, RATES)}")
        if self.rates != "equal":
            optimizer = optax.chain(optimizer, RATES[self.rates]())
        return optimizer if self.clip is None else optax.chain(optax.clip_by_global_norm(self.clip), optimizer)

    def as_data(self) -> dict[str, Any]:
        """Return what config.json holds."""
        data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if not isinstance(self.optimizer, str):
            data["optimizer"] = "an optax transformation built in Python"
            del data["learning_rate"], data["schedule"]
        data["priors"] = {name: prior_text(prior) for name, prior in self.priors.items()}
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in data.items()}

    def _named_optimizer(self) -> optax.GradientTransformation:
        known = optimizers()
        if self.optimizer not in known:
            raise InputError(f"There is no optimizer {self.optimizer!r}. {nearest(self.optimizer, known)}")
        if not (isinstance(self.learning_rate, int | float) and 0 < self.learning_rate < math.inf):
            raise InputError(f"The learning rate must be a positive number, but got {self.learning_rate!r}.")
        return _call(self.optimizer, known[self.optimizer], {"learning_rate": self._rate()}, self.optimizer_options)

    def _rate(self) -> Any:
        if self.schedule == "constant" and not self.schedule_options:
            return self.learning_rate
        if self.schedule not in SCHEDULES:
            raise InputError(f"There is no schedule {self.schedule!r}. {nearest(self.schedule, SCHEDULES)}")
        rate, steps = self.learning_rate, self.steps
        warmup = {"warmup_steps": max(1, steps // 20), "decay_steps": max(2, steps)}
        defaults: dict[str, Any] = {
            "constant": {"value": rate},
            "cosine": {"init_value": rate, "decay_steps": steps},
            "exponential": {"init_value": rate, "transition_steps": steps, "decay_rate": 0.01},
            "linear": {"init_value": rate, "end_value": 0.0, "transition_steps": steps},
            "warmup-cosine": {"init_value": 0.0, "peak_value": rate, **warmup},
        }
        return _call(self.schedule, SCHEDULES[self.schedule], defaults[self.schedule], self.schedule_options)


def _require_data(name: str, value: Any) -> None:
    """Refuse an option that config.json cannot represent."""
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"The option {name} is {value}, but a finite number is wanted.")
    if not (value is None or isinstance(value, bool | int | float | str)):
        raise InputError(
            f"The option {name} is {value!r}, but a number, a word, True, False or None is wanted. Build the "
            "optimizer with optax itself, and pass it."
        )


def _try(optimizer: optax.GradientTransformation, name: Any) -> None:
    """Refuse an optimizer that cannot update a number, or whose state no checkpoint can hold."""
    number = jax.ShapeDtypeStruct((2,), float_dtype())
    try:
        state = jax.eval_shape(optimizer.init, number)
        jax.eval_shape(optimizer.update, number, state, number)
    except Exception as error:
        # An option of the wrong kind is noticed only here, by an error of any type.
        text = str(error).strip().partition("\n")[0] or type(error).__name__
        raise InputError(
            f"The optimizer {name!r} does not work with these options: {text}. Change them, or choose another one."
        ) from error
    if any(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in jax.tree.leaves(state)):
        raise InputError(f"The optimizer {name!r} keeps a random key, which is not supported. Choose another one.")


def _require_whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        limit = "" if most is None else f" and at most {most}"
        raise InputError(f"{name} must be a whole number, at least {least}{limit}, but got {value!r}.")


def _call(name: str, function: Callable[..., Any], defaults: Mapping[str, Any], chosen: Mapping[str, Any]) -> Any:
    """Call a function of optax with the options that the user chose; an unknown one is refused."""
    known = [one for one in inspect.signature(function).parameters if one != "learning_rate"]
    for option in chosen:
        if option not in known:
            raise InputError(f"{name} has no option {option!r}. {nearest(option, known)}")
    options = {**defaults, **chosen}
    try:
        return function(**options)
    except (TypeError, ValueError) as error:
        raise InputError(f"optax cannot build {name} with {options}: {error}. Change its options.") from error
