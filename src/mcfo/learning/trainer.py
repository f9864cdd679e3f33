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
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from mcfo.data.batching import Batches, as_buckets
from mcfo.errors import InputError
from mcfo.gradients.rules import DEVICES
from mcfo.learning.batch_gradients import first_trajectories, map_over_seeds
from mcfo.learning.checks import checked
from mcfo.learning.coordinates import Coordinates
from mcfo.learning.devices import build_mesh, choose_devices, replicate_on
from mcfo.learning.evaluator import Evaluator
from mcfo.learning.looks import GAIN, LOG_LIKELIHOODS, Gains, Look, averaged_from, is_settled, look_steps, looks_of
from mcfo.learning.parameters import Modules, describe, finite_or_none, split
from mcfo.learning.priors import Priors
from mcfo.learning.results import Fitted, SeedFit
from mcfo.learning.settings import Settings
from mcfo.learning.standardization import as_given, standardize_for_particles
from mcfo.learning.step import State, build_chunk
from mcfo.models.base import Model
from mcfo.objectives.objective import Objective
from mcfo.precision import in_float64, settled
from mcfo.validation import float_dtype

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
        self.objective = checked(objective, modules, self.data, self.validation, settings)
        self.modules, self.settings = modules, settings
        learns, self._standard = modules, as_given(self.data, modules)
        if settings.standardize:
            learns, self._standard = standardize_for_particles(modules, self.data, settings.fixed)
        self._learned, self._rest = split(learns, settings.fixed)
        if not jax.tree.leaves(self._learned):
            raise InputError("Nothing is left to learn: every parameter is fixed. Fix fewer of them.")
        self._optimizer = settings.transformation()
        counts = tuple(len(batch.observations) for batch in self.data)
        self._batches = Batches(counts, settings.batch, settings.seeds)
        self.devices = choose_devices(settings.devices, self._batches.size)
        self._mesh = build_mesh(self.devices, DEVICES)
        fixed, static = eqx.partition(self._rest, eqx.is_array)
        self._seeds = replicate_on(self._mesh, jax.device_put(np.asarray(settings.seeds, np.int32)))
        self._fixed = replicate_on(self._mesh, fixed)
        self._shared_data = replicate_on(self._mesh, self._standard.data)
        self._evaluator = Evaluator(self._standard, modules, self.data, self.validation, settings, self.particles)
        # The likelihood of a network is looked at once: it hardly ever stops to grow, and validation data say when to.
        self._looks = look_steps(settings) if self._evaluator.looks else ()
        self._averaged_from = averaged_from(settings, self._looks)
        self._gains = Gains(self._looks, self._averaged_from, sum(counts))
        scale = self._standard.scale
        prior = self._log_prior(sum(counts)) if settings.priors else None
        self._chunk = build_chunk(
            self.objective, self._optimizer, static, self._averaged_from, self._mesh, scale, self._looks, prior
        )
        self._validate = None
        if self.validation is not None:
            self._validate = self._evaluator.compile_validation(self.validation, self._rest, self._seeds, self._mesh)
        self._watch = None if watch is None else _compile_watch(watch, modules, self._in_unit)
        self.select = settings.select or ("best" if validation is not None else "average")

    @property
    def particles(self) -> int:
        """The number of particles of the filter whose bound is maximized."""
        return self.objective.theta.sampler.particles

    @property
    def evaluation_particles(self) -> int:
        """The number of particles of evaluations."""
        return self._evaluator.particles

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
        seeds, trajectories = self.settings.seeds, None
        if self.objective.keeps_trajectories:
            keys = jax.vmap(jax.random.key)(np.asarray(seeds))
            modules: Modules = eqx.combine(self._learned, self._rest).current()
            trajectories = first_trajectories(self.objective, modules, self._standard.data, keys)
        return self.replicate(
            State.start(self._learned, self._optimizer, len(seeds), looks=bool(self._looks), trajectories=trajectories)
        )

    def replicate(self, state: State) -> State:
        """Return the state with a copy on every device."""
        return replicate_on(self._mesh, state)

    def is_due(self, state: State) -> bool:
        """Whether there are validation data, and an evaluation is due."""
        step = int(state.step)
        last = step >= self.settings.steps
        return self._validate is not None and (last or step % self.settings.evaluation_interval == 0)

    def is_over(self, state: State, lines: list[Line]) -> bool:
        """Whether all updates are made, no seed has improved within its patience, or a look has seen that none will."""
        patience = self.settings.patience
        exhausted = patience is not None and bool(np.all(np.asarray(state.stale) >= patience))
        return exhausted or int(state.step) >= self.settings.steps or self.is_settled(lines)

    def is_look(self, state: State) -> bool:
        """Whether the likelihood is looked at after this update."""
        return int(state.step) in self._looks

    def is_settled(self, lines: list[Line]) -> bool:
        """Whether the last look has seen that no seed improves any more."""
        return bool(self._looks) and is_settled(self.settings, lines)

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

    def look(self, state: State, lines: list[Line]) -> tuple[State, list[Line]]:
        """Look at the averaged parameters of each seed: their log-likelihood, and what they gained."""
        assert state.looking is not None
        flat = np.asarray(jax.vmap(lambda one: ravel_pytree(one)[0])(state.average), np.float64)
        looking, gains = self._gains.look(state.looking, flat, int(state.step))
        state = self.replicate(eqx.tree_at(lambda s: s.looking, state, looking))
        found = [self._evaluator.look(self._seed_of(state.average, index), seed) for index, seed in self._numbered()]
        return state, [
            {**line, LOG_LIKELIHOODS: [finite_or_none(value) for value in own], GAIN: None if gain is None else [*gain]}
            for line, own, gain in zip(lines, found, gains, strict=True)
        ]

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
        late = int(state.step) > self._averaged_from[0]
        selected = "last" if self.select == "average" and not late else self.select
        chosen = {"best": state.best, "average": state.average, "last": state.learned}[selected]
        seeds = []
        for index, seed in self._numbered():
            learned = self._seed_of(chosen, index)
            # Labels in a fixed order: regimes of several seeds, reports and probabilities then mean the same.
            found = self._in_unit(learned)
            modules = Modules(_canonical(found.model), found.proposal, found.follows).current()
            best_step = int(state.best_step[index]) if self.validation is not None else None
            evaluation, last = self._evaluator.finish(learned, modules.model, seed)
            looks = self._all_looks(seed, int(state.step), lines, last) if last else ()
            skipped = int(state.skipped[index])
            seeds.append(SeedFit(seed, modules.model, modules.proposal, evaluation, skipped, best_step, looks=looks))
        stopped = "early" if int(state.step) < self.settings.steps else "finished"
        return Fitted(
            seeds=tuple(seeds),
            metrics=tuple(lines),
            settings=self.settings,
            steps=int(state.step),
            seconds=seconds,
            selected=selected,
            evaluated_on="data" if self.validation is None else "validation",
            stopped="converged" if self.is_settled(lines) else stopped,
            rule=self.objective.theta.rule.name,
            buckets=self.data,
        )

    def _log_prior(self, series: int) -> Callable[[Any], Array]:
        """The log-density of the prior of a model in standard units, for each series."""
        priors = Priors.build(self.settings.priors, Coordinates.build(self.modules.model, self.settings.fixed))
        return lambda model: priors.log_density(self._standard.restored(model)) / series

    def _all_looks(self, seed: int, step: int, lines: list[Line], last: tuple[float, ...]) -> tuple[Look, ...]:
        """The looks of a seed, from its start to what it returns."""
        start: Modules = eqx.combine(self._learned, self._rest)
        first = Look(0, self._evaluator.look(start.current(), seed))
        return first, *looks_of(seed, lines), Look(step, last)

    def _numbered(self) -> list[tuple[int, int]]:
        return list(enumerate(self.settings.seeds))

    def _seed_of(self, chosen: Modules, index: int) -> Modules:
        """The modules of one seed, in standard units."""
        own = jax.tree.map(lambda array: array[index], chosen)
        modules: Modules = eqx.combine(own, self._rest)
        return modules.current()

    def _in_unit(self, modules: Modules) -> Modules:
        """Modules in the unit of the data."""
        if self._standard.units is None:
            return modules
        return Modules(self._standard.restored(modules.model), modules.proposal, modules.follows).current()


def _canonical(model: Model) -> Model:
    """The labels of a model in a fixed order; in float64 where its arrays are, because they came from other units."""
    if any(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(model)):
        return settled(in_float64(lambda one: one.canonical())(model))
    return model.canonical()


def _ratio(total: float, count: float) -> float | None:
    """Return a mean, or None where nothing is averaged or the mean is not finite."""
    return finite_or_none(total / count) if count else None


def _compile_watch(
    watch: Callable[[Any, Any], Mapping[str, Any]], modules: Modules, in_unit: Callable[[Modules], Modules]
) -> Callable[[Modules, Modules], dict[str, Array]]:
    """Compile the watched numbers of modules in standard units, for each seed."""

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
        return map_over_seeds(lambda learned: numbers(in_unit(eqx.combine(learned, rest).current())), learned)

    return compiled
