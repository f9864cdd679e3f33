"""One training run, compiled: its updates, its evaluations and its result."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float

from mcfo.data.batching import Batches, Buckets, as_buckets
from mcfo.errors import InputError
from mcfo.gradients.rules import DEVICES, Reverse, has_networks
from mcfo.inference.evaluation import Scores, evaluate, evaluation_sampler, series_scores, usual_repeats
from mcfo.learning.devices import build_mesh, choose_devices, replicate_on
from mcfo.learning.parameters import Modules, describe, finite_or_none, named_arrays, split
from mcfo.learning.results import Fitted, SeedFit
from mcfo.learning.settings import Settings
from mcfo.learning.step import State, build_chunk, compiled, first_trajectories, map_over_seeds
from mcfo.objectives.objective import Objective
from mcfo.smc.compatibility import check_arguments
from mcfo.validation import float_dtype

_EVALUATION_TAG = 0x6576616C
"""Separates the random numbers of evaluations from those of updates."""

_FINAL_PARTICLES = 1000
"""The least number of particles with which the likelihood of a model with few parameters is reported."""

Line = dict[str, Any]
"""One line of the metrics, for one seed."""


class Trainer:
    """The compiled updates of a run, and the arrays that they need.

    **Arguments:**

    - `watch`: a function of model and proposal; the numbers that it returns by name go into the metrics.
    """

    def __init__(
        self,
        objective: Objective,
        modules: Modules,
        data: Any,
        validation: Any,
        settings: Settings,
        watch: Callable[[Any, Any], Mapping[str, Any]] | None = None,
    ):
        self.data = as_buckets(data, most=settings.buckets, batch=settings.batch)
        self.validation = None
        if validation is not None:
            cores = settings.devices or len(jax.devices())
            self.validation = as_buckets(validation, most=settings.buckets, multiple=cores)
        modules = Modules.learned_by(modules.model, modules.proposal, settings.fixed)
        self.objective = _checked(objective, modules, self.data, self.validation, settings)
        self.modules, self.settings = modules, settings
        self._learned, self._rest = split(modules, settings.fixed)
        if not jax.tree.leaves(self._learned):
            raise InputError("Nothing is left to learn: every parameter is fixed. Fix fewer of them.")
        self._optimizer = settings.transformation()
        counts = tuple(len(batch.observations) for batch in self.data)
        self._batches = Batches(counts, settings.batch, settings.seeds)
        self.devices = choose_devices(settings.devices, self._batches.size)
        self._mesh = build_mesh(self.devices, DEVICES)
        fixed, static = eqx.partition(self._rest, eqx.is_array)
        self._seeds = replicate_on(self._mesh, jax.device_put(np.asarray(settings.seeds, np.int32)))
        self._fixed, self._shared_data = replicate_on(self._mesh, fixed), replicate_on(self._mesh, self.data)
        self._chunk = build_chunk(self.objective, self._optimizer, static, settings.averaged_from, self._mesh)
        self._validate = None if self.validation is None else self._compile_validation(self.validation, static)
        self._watch = None if watch is None else _compile_watch(watch, modules)
        self.select = settings.select or ("best" if validation is not None else "average")

    @property
    def particles(self) -> int:
        """The number of particles of the filter whose bound is maximized."""
        return self.objective.theta.sampler.particles

    @property
    def evaluation_particles(self) -> int:
        """The number of particles of evaluations."""
        return self.settings.evaluation_particles or self.particles

    @property
    def precision(self) -> str:
        """The floating-point type of the run."""
        return str(float_dtype())

    def objective_data(self) -> dict[str, Any]:
        """What config.json says about the objective."""
        return {
            "name": self.objective.name,
            "theta": describe(self.objective.theta),
            "phi": describe(self.objective.phi),
            "backward": describe(self.objective.backward),
        }

    def optimizer_digest(self) -> str:
        """A hash of what the optimizer computes, also of one that was built in Python."""
        optimizer: Any = self._optimizer
        state = jax.eval_shape(optimizer.init, self._learned)
        return hashlib.sha256(
            str(jax.make_jaxpr(optimizer.update)(self._learned, state, self._learned)).encode()
        ).hexdigest()

    def start(self) -> State:
        """Return the state before the first update."""
        seeds = self.settings.seeds
        trajectories = None
        if self.objective.keeps_trajectories:
            keys = jax.vmap(jax.random.key)(np.asarray(seeds))
            trajectories = first_trajectories(self.objective, self.modules.current(), self.data, keys)
        return self.replicate(State.start(self._learned, self._optimizer, len(seeds), trajectories))

    def replicate(self, state: State) -> State:
        """Return the state with a copy on every device."""
        return replicate_on(self._mesh, state)

    def is_due(self, state: State) -> bool:
        """Whether there are validation data, and an evaluation is due."""
        step = int(state.step)
        last = step >= self.settings.steps
        return self._validate is not None and (last or step % self.settings.evaluation_interval == 0)

    def is_exhausted(self, state: State) -> bool:
        """Whether no seed has improved within its patience."""
        patience = self.settings.patience
        return patience is not None and bool(np.all(np.asarray(state.stale) >= patience))

    def advance(self, state: State) -> tuple[State, list[Line]]:
        """Run the updates of one line of the metrics, and return that line for each seed."""
        step, settings = int(state.step), self.settings
        count = min(settings.log_every - step % settings.log_every, settings.steps - step)
        buckets = np.zeros(settings.log_every, np.int32)
        indices = np.zeros((settings.log_every, len(settings.seeds), self._batches.size), np.int32)
        buckets[:count], indices[:count] = self._batches(step, count)
        state, sums = self._chunk(
            state, self._fixed, self._shared_data, buckets, indices, self._seeds, np.asarray(count, np.int32)
        )
        sums = jax.tree.map(np.asarray, sums)
        looks = settings.watch_every is None or int(state.step) % settings.watch_every == 0
        watched = self.watch(state) if looks or int(state.step) == settings.steps else {}
        skipped = np.asarray(state.skipped)
        learns_phi = bool(jax.tree.leaves(self._learned.proposal)) and self.objective.phi is not None
        lines = []
        for index, seed in enumerate(settings.seeds):
            own = jax.tree.map(lambda array, index=index: float(array[index]), sums)
            line: Line = {
                "seed": seed,
                "step": step + count,
                "loss": _ratio(own.loss, own.updates),
                "log_evidence_per_step": _ratio(own.log_evidence, own.steps),
                "ess": _ratio(own.ess, own.steps),
                "grad_norm_theta": _ratio(own.norm_theta, own.updates),
                "grad_norm_phi": _ratio(own.norm_phi, own.updates) if learns_phi else None,
                "skipped": int(skipped[index]),
            }
            if watched:
                line["watched"] = {name: finite_or_none(values[index]) for name, values in watched.items()}
            lines.append(line)
        return state, lines

    def validate(self, state: State, lines: list[Line]) -> tuple[State, list[Line]]:
        """Evaluate on the validation data, and save the parameters of the seeds that have improved."""
        assert self._validate is not None
        nll, ess = self._validate(state.learned)
        better = nll < state.best_nll
        state = eqx.tree_at(
            lambda s: (s.best, s.best_nll, s.best_step, s.stale),
            state,
            (
                jax.tree.map(
                    lambda new, old: jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old),
                    state.learned,
                    state.best,
                ),
                jnp.where(better, nll, state.best_nll),
                jnp.where(better, state.step, state.best_step),
                jnp.where(better, 0, state.stale + 1),
            ),
        )
        state = self.replicate(state)
        scored = [
            {
                **line,
                "validation_nll_per_step": finite_or_none(nll[index]),
                "validation_ess": finite_or_none(ess[index]),
            }
            for index, line in enumerate(lines)
        ]
        return state, scored

    def score(self, lines: list[Line]) -> float:
        """Return the criterion of the best checkpoint: the validation NLL averaged over the seeds, infinite if one
        has none."""
        values = [line.get("validation_nll_per_step") for line in lines]
        return float(np.mean([math.inf if value is None else value for value in values]))

    def best_score(self, lines: list[Line]) -> float:
        """Return the lowest score among the lines of a run."""
        count = len(self.settings.seeds)
        scores = [self.score(lines[index : index + count]) for index in range(0, len(lines), count)]
        return min(scores, default=math.inf)

    def watch(self, state: State) -> dict[str, np.ndarray]:
        """Return the watched numbers of each seed."""
        if self._watch is None:
            return {}
        return jax.tree.map(np.asarray, self._watch(state.learned, self._rest))

    def finish(self, state: State, lines: list[Line], seconds: float) -> Fitted:
        """Select the parameters of each seed, and evaluate them."""
        # A run that stopped early may have no average.
        late = int(state.step) > self.settings.averaged_from
        selected = "last" if self.select == "average" and not late else self.select
        chosen = {"best": state.best, "average": state.average, "last": state.learned}[selected]
        data = self.data if self.validation is None else self.validation
        seeds = []
        for index, seed in enumerate(self.settings.seeds):
            learned = jax.tree.map(lambda array, index=index: array[index], chosen)
            modules: Modules = eqx.combine(learned, self._rest)
            # Labels in a fixed order: regimes of several seeds, reports and probabilities then mean the same.
            modules = Modules(modules.model.canonical(), modules.proposal, modules.follows).current()
            evaluation = evaluate(
                modules.model,
                modules.proposal,
                data,
                particles=self._final_particles(),
                repeats=1 if self.settings.evaluation_particles else usual_repeats(modules.model, modules.proposal),
                key=self._evaluation_key(seed),
            )
            best_step = int(state.best_step[index]) if self.validation is not None else None
            seeds.append(
                SeedFit(seed, modules.model, modules.proposal, evaluation, int(state.skipped[index]), best_step)
            )
        return Fitted(
            seeds=tuple(seeds),
            metrics=tuple(lines),
            settings=self.settings,
            steps=int(state.step),
            seconds=seconds,
            selected=selected,
            evaluated_on="data" if self.validation is None else "validation",
            stopped="early" if int(state.step) < self.settings.steps else "finished",
        )

    def _final_particles(self) -> int:
        """The number of particles of the last evaluation, whose likelihood is reported."""
        asked, few = self.settings.evaluation_particles, not has_networks(self.modules.model, self.modules.proposal)
        return asked or (max(self.particles, _FINAL_PARTICLES) if few else self.particles)

    def _evaluation_key(self, seed: Any) -> Any:
        return jax.random.fold_in(jax.random.key(seed), _EVALUATION_TAG)

    def _compile_validation(self, buckets: Buckets, static: Modules) -> Callable[[Modules], tuple[Array, Array]]:
        """Compile the NLL per step and the mean effective sample size of each seed, with common random numbers."""
        sampler = evaluation_sampler(self.evaluation_particles)
        divides = all(len(batch.observations) % self.devices == 0 for batch in buckets)
        mesh = self._mesh if divides else build_mesh(1, DEVICES)

        def compute(learned: Modules, fixed: Modules, buckets: Buckets, seeds: Array) -> tuple[Array, Array]:
            def one(learned: Modules, seed: Array) -> Float[Array, " 4"]:
                modules = eqx.combine(learned, fixed, static).current()
                key = self._evaluation_key(seed)
                total = jnp.zeros(4)
                for batch in buckets:
                    scores: Scores = series_scores(sampler, modules.model, modules.proposal, batch, key=key)
                    parts = scores.log_evidence, scores.ess_sum, scores.steps, scores.observed_steps
                    total = total + jnp.stack([jnp.sum(part) for part in parts])
                return total

            sums = map_over_seeds(one, learned, seeds)
            if mesh.size > 1:
                sums = jax.lax.psum(sums, DEVICES)
            return -sums[:, 0] / sums[:, 3], sums[:, 1] / sums[:, 2]

        whole = PartitionSpec()
        program = compiled(compute, mesh, (whole, whole, PartitionSpec(DEVICES), whole))
        fixed, data, seeds = (replicate_on(mesh, tree) for tree in (self._fixed, buckets, self._seeds))
        return lambda learned: program(replicate_on(mesh, learned), fixed, data, seeds)


def _ratio(total: float, count: float) -> float | None:
    """Return a mean, or None where nothing is averaged or the mean is not finite."""
    return finite_or_none(total / count) if count else None


def _compile_watch(
    watch: Callable[[Any, Any], Mapping[str, Any]], modules: Modules
) -> Callable[[Modules, Modules], dict[str, Array]]:
    def numbers(modules: Modules) -> dict[str, Array]:
        return {name: jnp.asarray(value) for name, value in watch(modules.model, modules.proposal).items()}

    for name, value in eqx.filter_eval_shape(numbers, modules).items():
        if value.shape != ():
            raise InputError(
                f"watch returns {name!r} of shape {value.shape}, but numbers are wanted. Return one number "
                "for each name."
            )

    @eqx.filter_jit
    def compiled(learned: Modules, rest: Modules) -> dict[str, Array]:
        return map_over_seeds(lambda learned: numbers(eqx.combine(learned, rest).current()), learned)

    return compiled


def _checked(
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
