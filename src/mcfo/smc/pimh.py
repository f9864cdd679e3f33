"""Particle independent Metropolis-Hastings: SMC sweeps as proposals of a Markov chain over whole trajectories."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Series
from mcfo.smc.compatibility import check_arguments, check_instance, check_series, is_positive, whole_number
from mcfo.smc.filter import SMC
from mcfo.smc.smoothing import draw_trajectories
from mcfo.smc.trace import Trace
from mcfo.types import Key

_TAG = 0x70696D68
"""Separates the keys of a chain from those that a filter derives from the same key."""


class Chain(eqx.Module):
    """M Metropolis-Hastings iterations over M + 1 independent sweeps.

    - `log_evidences`: log p̂ of every sweep, accepted or not. Their mean is a lower bound of log p(x_1:T) in
      expectation. That of the accepted sweep is not, because acceptance favors large values.
    - `current`: the index of the chain's current sweep at the start and after each iteration.
    - `trace`: the run of the sweep that is current at the end.
    - `key`: the key of that sweep.
    """

    log_evidences: Float[Array, "*batch sweeps"]
    current: Int[Array, "*batch sweeps"]
    trace: Trace
    key: Key

    @property
    def log_evidence(self) -> Float[Array, "*batch"]:
        """The mean of log p̂(x_1:T) over all sweeps."""
        return jnp.mean(self.log_evidences, axis=-1)

    @property
    def acceptance_rate(self) -> Float[Array, "*batch"]:
        """The share of the iterations that moved to their sweep."""
        moved = self.current[..., 1:] != self.current[..., :-1]
        return jnp.mean(moved, axis=-1, dtype=self.log_evidences.dtype)


class PIMH(eqx.Module):
    """Particle independent Metropolis-Hastings (Algorithm 2 of the paper; Andrieu, Doucet and Holenstein, 2010).

    Each iteration runs the filter again and accepts it with probability min(1, p̂* / p̂). The sweeps do not depend on
    one another, so all M + 1 run in parallel and the chain is a scan over M numbers. With `history` each sweep saves
    its history while it runs, which takes M + 1 times the memory of one filter. The distribution of the current
    trajectory converges to the exact *smoothing* distribution as M grows, whatever the number of particles.

    **Arguments:**

    - `sampler`: the filter of one sweep.
    - `sweeps`: M.
    - `reuse_noise`: whether gradients pass through the accepted sweep's own noise. Acceptance selects the sweep by this
      noise, so the gradients are biased, also at the optimal proposal; the option exists to show the bias.
    """

    sampler: SMC
    sweeps: int = eqx.field(static=True, converter=whole_number)
    reuse_noise: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        check_instance(self.sampler, SMC, "sampler", "Use PIMH(SMC(particles), sweeps)")
        if not is_positive(self.sweeps):
            raise ValueError(
                f"PIMH needs a whole number of sweeps, at least one iteration, but got {self.sweeps!r}. For none, "
                "use SMC."
            )

    @property
    def particles(self) -> int:
        return self.sampler.particles

    def __call__(self, model: Model, proposal: Proposal, series: Series, *, key: Key, history: bool = False) -> Chain:
        """Run the chain over one series; `history` saves every particle of the accepted sweep."""
        check_arguments(model, proposal, key)
        check_series(series)
        return _run(self, model, proposal, series, key, history)

    def trajectories(
        self, model: Model, proposal: Proposal, series: Series, *, key: Key
    ) -> tuple[Shaped[Array, "sweeps steps *latent"], Chain]:
        """Return the current trajectory z_1:T at the start and after each iteration, and the chain that chose them."""
        check_arguments(model, proposal, key)
        check_series(series)
        return _trajectories(self, model, proposal, series, key)


@eqx.filter_jit
def _run(pimh: PIMH, model: Model, proposal: Proposal, series: Series, key: Key, history: bool) -> Chain:
    return _sweeps(pimh, model, proposal, series, key, history)[1]


@eqx.filter_jit
def _trajectories(pimh: PIMH, model: Model, proposal: Proposal, series: Series, key: Key):
    traces, chain = _sweeps(pimh, model, proposal, series, key, history=True)
    keys = jax.random.split(_chain_key(key, series.series_id, "draw"), pimh.sweeps + 1)
    paths = jax.vmap(lambda trace, key: draw_trajectories(trace, 1, key=key).latents[:, 0])(traces, keys)
    return paths[chain.current], chain


def _sweeps(pimh: PIMH, model: Model, proposal: Proposal, series: Series, key: Key, history: bool):
    """Return the traces of all sweeps, whose first axis is the sweeps, and the chain over them."""
    keys = jax.random.split(_chain_key(key, series.series_id, "sweep"), pimh.sweeps + 1)
    traces: Trace = jax.vmap(lambda key: pimh.sampler(model, proposal, series, key=key, history=history))(keys)
    current = _accept(traces.log_evidence, _chain_key(key, series.series_id, "accept"))
    # The accepted sweep is picked, not run again from its key: in float32 another batch shape rounds differently, and
    # resampling then chooses other ancestors.
    trace, accepted = jax.tree.map(lambda array: array[current[-1]], (traces, keys))
    return traces, Chain(traces.log_evidence, current, trace, accepted)


def _chain_key(key: Key, series_id: Int[Array, ""], use: str) -> Key:
    tag = _TAG + ("sweep", "accept", "draw").index(use)
    return jax.random.fold_in(jax.random.fold_in(key, tag), series_id)


def _accept(log_evidences: Float[Array, " sweeps"], key: Key) -> Int[Array, " sweeps"]:
    """Return the index of the current sweep at the start and after each iteration."""
    log_evidences = jnp.where(jnp.isnan(log_evidences), -jnp.inf, log_evidences)
    log_uniforms = -jax.random.exponential(key, (len(log_evidences) - 1,), log_evidences.dtype)

    def iterate(current, candidate):
        sweep, log_uniform = candidate
        ratio = log_evidences[sweep] - log_evidences[current]
        # A collapsed sweep (log p̂ = -inf) is left at once, also for another collapsed one, where the ratio is NaN.
        moves = (log_uniform < ratio) | jnp.isneginf(log_evidences[current])
        current = jnp.where(moves, sweep, current)
        return current, current

    start = jnp.asarray(0, jnp.int32)
    candidates = (jnp.arange(1, len(log_evidences), dtype=jnp.int32), log_uniforms)
    _, rest = jax.lax.scan(iterate, start, candidates)
    return jnp.concatenate([start[None], rest])
