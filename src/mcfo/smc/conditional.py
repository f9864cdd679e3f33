"""Conditional sequential Monte Carlo: a filter that keeps a given trajectory, and the Markov chain that it makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp

from mcfo.errors import nearest
from mcfo.models.base import MarkovModel, Model
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.smc.compatibility import check_arguments, check_instance, check_series, is_positive, whole_number
from mcfo.smc.noise import Randomness, typed
from mcfo.smc.resampling import Always, Conditional, Criterion, Resampling, Systematic
from mcfo.smc.smoothing import ancestral_paths, backward_simulation
from mcfo.smc.step import Filter, Outcome, Reference, take_step
from mcfo.smc.step_scan import frames, step_scan
from mcfo.smc.trace import History, State, Trace
from mcfo.smc.trajectory import Trajectory, log_ahead
from mcfo.types import Key

_TAG = 0x63736D63
"""Keeps the keys of a conditional filter's ends apart from those of its steps."""

Sampling = Literal["ancestors", "backward", "none"]


class Sweep(NamedTuple):
    """A run over one series: the trajectory that was chosen, the trace with its history, and all particles' paths.

    `paths` has the latents of the last particles' ancestors and what was imputed for them, (steps, particles, ...);
    weighted by the last weights, they average over the choice of the trajectory.
    """

    trajectory: Trajectory
    trace: Trace
    paths: Trajectory


class ConditionalSMC(eqx.Module):
    """A filter with K particles of which one keeps a given trajectory, z'_1:T.

    One sweep draws a trajectory given z'_1:T and leaves p(z_1:T | x_1:T) invariant, for every K >= 2, every scheme and
    every criterion. Repeated, it is particle Gibbs smoothing. Andrieu, Doucet and Holenstein (2010).

    With A the ancestors, b the reference's index and r the scheme's law, resampling draws (A, b_t) from
    r(A) 1{A_b_t = b_t-1} / (K W_b_t-1), and b_1 evenly. Chopin and Singh (2015) for the schemes in turn.

    **Arguments:**

    - `particles`: K.
    - `resampling`, `criterion`: as in [`SMC`][], at every step by default.
    - `sampling`: what keeps early steps from being stuck with the one lineage that survives. "ancestors" draws the
      reference's ancestor anew at each step, with probability proportional to W_t-1 p(z'_t:T, x_t:T | h_t-1) (Lindsten,
      Jordan and Schön, 2014): O(K) a step for a Markov model, and O(K (T - t)) for others, whose whole future depends
      on it. "backward" draws the trajectory backwards (Whiteley, 2010; Markov models only). "none" does neither: K has
      to grow with T.
    - `lag`: weigh so many of the remaining steps only, of a model with memory. Approximate: the chain's stationary law
      is then another one, by as much as the model remembers for longer.
    """

    particles: int = eqx.field(static=True, converter=whole_number)
    resampling: Resampling = Systematic()
    criterion: Criterion = eqx.field(default_factory=Always)
    sampling: Sampling = eqx.field(static=True, default="ancestors")
    lag: int | None = eqx.field(static=True, default=None, converter=whole_number)

    def __check_init__(self):
        if not is_positive(self.particles) or self.particles < 2:
            raise ValueError(
                f"A conditional filter needs at least 2 particles, one of them for the given trajectory, but got "
                f"{self.particles!r}."
            )
        check_instance(self.resampling, Resampling, "resampling", "Use resampling=Systematic(), say")
        check_instance(self.criterion, Criterion, "criterion", "Use criterion=Always(), say")
        if type(self.resampling).conditional is Resampling.conditional and not isinstance(self.resampling, Conditional):
            raise ValueError(
                f"{type(self.resampling).__name__} has no conditional(), which draws ancestors given one of them. "
                "Write it, or use Systematic(), Stratified(), Residual() or Multinomial()."
            )
        if self.sampling not in get_args(Sampling):
            raise ValueError(
                f"There is no sampling {self.sampling!r}. {nearest(str(self.sampling), list(get_args(Sampling)))}"
            )
        if self.lag is not None and (not is_positive(self.lag) or self.sampling != "ancestors"):
            raise ValueError(
                f"The lag is a whole number of steps, at least 1, for sampling='ancestors'; but got {self.lag!r} with "
                f"sampling={self.sampling!r}. Leave it out to weigh the whole remaining trajectory."
            )

    def __call__(
        self, model: Model, proposal: Proposal, series: Series, trajectory: Trajectory | None, *, key: Key
    ) -> Sweep:
        """One sweep over a series, given a trajectory; without one, that of an ordinary filter.

        Where a sweep breaks down (its evidence is not finite), the trajectory stays.
        """
        self.check(model, proposal, series, key)
        return _sweep(self, model, proposal, series, trajectory, key)

    def trajectories(
        self, model: Model, proposal: Proposal, series: Series, count: int, *, burn_in: int = 0, key: Key
    ) -> tuple[Trajectory, Trace]:
        """The trajectories of a chain after each of `count` sweeps, a new first axis, and the trace of the filter that
        found the first.

        **Arguments:**

        - `burn_in`: how many sweeps come before them.
        """
        self.check(model, proposal, series, key)
        if not is_positive(whole_number(count)) or burn_in < 0:
            raise ValueError(f"A chain has at least one sweep after its burn-in, but got {count!r} and {burn_in!r}.")
        return _chain(self, model, proposal, series, whole_number(count), whole_number(burn_in), key)

    def check(self, model: Model, proposal: Proposal, series: Series, key: Key) -> None:
        """Refuses what does not fit together."""
        check_arguments(model, proposal, key)
        check_series(series)
        self.check_model(model)

    def check_model(self, model: Model) -> None:
        """Refuses backward sampling for a model with memory."""
        if self.sampling == "backward" and not isinstance(model, MarkovModel):
            raise ValueError(
                f"sampling='backward' needs p(z_t+1 | z_t), but {type(model).__name__} is not a MarkovModel: its next "
                "latent depends on the whole past. Use sampling='ancestors'."
            )


class _Conditioned(NamedTuple):
    """The filter as its steps see it."""

    particles: int
    resampling: Conditional
    criterion: Criterion


@eqx.filter_jit
def _sweep(
    sampler: ConditionalSMC,
    model: Model,
    proposal: Proposal,
    series: Series,
    trajectory: Trajectory | None,
    key: Key,
) -> Sweep:
    own = jax.random.fold_in(jax.random.fold_in(typed(key), _TAG), series.series_id)
    first, last = jax.random.split(own)
    scheme = sampler.resampling if isinstance(sampler.resampling, Conditional) else Conditional(sampler.resampling)
    filtering = _Conditioned(sampler.particles, scheme, sampler.criterion)
    step: Callable[..., Outcome] = take_step
    if trajectory is not None:
        step = _keeping(
            sampler,
            trajectory,
            frames(proposal, series),
            jax.random.randint(first, (), 0, sampler.particles, jnp.int32),
        )

    def visit(before: State | None, outcome: Outcome, frame: Frame, extra: None) -> Any:
        state = outcome.state
        observations = outcome.observations
        return outcome.record, History(state.latents, state.log_weights, outcome.draw.ancestors), observations

    state, (record, history, observations) = step_scan(filtering, model, proposal, series, visit, key=key, step=step)
    trace = Trace(state, record, history, series.length, series.series_id)
    everyone = jnp.arange(sampler.particles, dtype=jnp.int32)
    paths = Trajectory(*ancestral_paths((history.latents, observations), history.ancestors, everyone))
    dtype = state.log_weights.dtype
    chosen = scheme.choose(state.log_weights, (None, jax.random.uniform(last, (3,), dtype)))
    found = jax.tree.map(lambda array: array[:, chosen], paths)
    if sampler.sampling == "backward":
        found = Trajectory(backward_simulation(model, trace, series, 1, key=last).latents[:, 0], None)
    if trajectory is not None:
        good = jnp.isfinite(trace.log_evidence)
        found = jax.tree.map(lambda new, old: jnp.where(good, new, old), found, trajectory)
    return Sweep(found, trace, paths)


def _keeping(sampler: ConditionalSMC, path: Trajectory, steps: Frame, index: Any) -> Callable[..., Outcome]:
    """A step that keeps its part of a trajectory."""

    def step(
        filtering: Filter, model: Model, proposal: Proposal, state: State | None, frame: Frame, randomness: Randomness
    ) -> Outcome:
        time = frame.time - steps.time[0]
        latent, observation = jax.tree.map(lambda array: array[time], (path.latents, path.observations))
        ahead = None
        if state is not None and sampler.sampling == "ancestors":
            ahead = log_ahead(model, state.memory, steps, path, time, sampler.lag)
        reference = Reference(index, latent, observation, ahead)
        return take_step(filtering, model, proposal, state, frame, randomness, reference)

    return step


@eqx.filter_jit
def _chain(
    sampler: ConditionalSMC, model: Model, proposal: Proposal, series: Series, count: int, burn_in: int, key: Key
) -> tuple[Trajectory, Trace]:
    keys = jax.random.split(jax.random.fold_in(typed(key), _TAG), 1 + burn_in + count)
    first = _sweep(sampler, model, proposal, series, None, keys[0])

    def iterate(path: Trajectory, key: Key) -> tuple[Trajectory, None]:
        return _sweep(sampler, model, proposal, series, path, key).trajectory, None

    def saved(path: Trajectory, key: Key) -> tuple[Trajectory, Trajectory]:
        path, _ = iterate(path, key)
        return path, path

    path, _ = jax.lax.scan(iterate, first.trajectory, keys[1 : 1 + burn_in])
    return jax.lax.scan(saved, path, keys[1 + burn_in :])[1], first.trace
