"""Particle independent Metropolis-Hastings: SMC sweeps as proposals of a Markov chain over whole trajectories."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.sequences import Sequence
from mcfo.smc.filter import SMC
from mcfo.smc.smoothing import draw_trajectories
from mcfo.smc.trace import Trace
from mcfo.types import Key


class Chain(eqx.Module):
    """M Metropolis-Hastings iterations over M + 1 independent sweeps.

    - `log_evidences`: log p̂ of every sweep, accepted or not. Their mean is a lower bound of log p(x_1:T) in
      expectation; the accepted sweep's own is not, because acceptance favours large ones.
    - `current`: which sweep is in force at the start and after each iteration.
    - `trace`: the run of the sweep that is in force at the end.
    """

    log_evidences: Float[Array, "*batch sweeps"]
    current: Int[Array, "*batch sweeps"]
    trace: Trace

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

    Each iteration runs the filter anew and accepts it with probability min(1, p̂* / p̂). The sweeps do not depend on
    one another, so all M + 1 run side by side and the chain is a scan over M numbers; the accepted sweep is then run
    again from its key. The trajectories in force follow the exact *smoothing* law as M grows, whatever the number of
    particles.
    """

    sampler: SMC
    sweeps: int = eqx.field(static=True)

    def __check_init__(self):
        if isinstance(self.sweeps, bool) or not isinstance(self.sweeps, int) or self.sweeps < 1:
            raise ValueError(f"PIMH needs at least one iteration, but got sweeps={self.sweeps!r}. For none, use SMC.")

    @property
    def particles(self) -> int:
        return self.sampler.particles

    def __call__(
        self, model: Model, proposal: Proposal, sequence: Sequence, *, key: Key, history: bool = False
    ) -> Chain:
        """Runs the chain over one sequence; `history` keeps every particle of the accepted sweep."""
        return _run(self, model, proposal, sequence, key, history)

    def trajectories(
        self, model: Model, proposal: Proposal, sequence: Sequence, *, key: Key
    ) -> tuple[Shaped[Array, "sweeps steps *latent"], Chain]:
        """The trajectory z_1:T in force at the start and after each iteration, with the chain that chose them."""
        return _trajectories(self, model, proposal, sequence, key)


@eqx.filter_jit
def _run(pimh: PIMH, model: Model, proposal: Proposal, sequence: Sequence, key: Key, history: bool) -> Chain:
    sweep_keys, chain_key = _keys(pimh, sequence, key)
    log_evidences = jax.vmap(lambda key: pimh.sampler(model, proposal, sequence, key=key).log_evidence)(sweep_keys)
    current = _accept(log_evidences, chain_key)
    trace = pimh.sampler(model, proposal, sequence, key=sweep_keys[current[-1]], history=history)
    return Chain(log_evidences, current, trace)


@eqx.filter_jit
def _trajectories(pimh: PIMH, model: Model, proposal: Proposal, sequence: Sequence, key: Key):
    chain = pimh(model, proposal, sequence, key=key)
    sweep_keys, _ = _keys(pimh, sequence, key)

    def draw(sweep_key: Key):
        trace = pimh.sampler(model, proposal, sequence, key=sweep_key, history=True)
        return draw_trajectories(trace, 1, key=jax.random.fold_in(sweep_key, 0)).latents[:, 0]

    # One sweep at a time: side by side, their histories would need M + 1 times the memory.
    return jax.lax.map(draw, sweep_keys)[chain.current], chain


def _keys(pimh: PIMH, sequence: Sequence, key: Key) -> tuple[Shaped[Array, "sweeps ..."], Key]:
    key = jax.random.fold_in(key, sequence.number)
    return jax.random.split(jax.random.fold_in(key, 0), pimh.sweeps + 1), jax.random.fold_in(key, 1)


def _accept(log_evidences: Float[Array, " sweeps"], key: Key) -> Int[Array, " sweeps"]:
    """Which sweep is in force at the start and after each iteration."""
    log_uniforms = -jax.random.exponential(key, (len(log_evidences) - 1,), log_evidences.dtype)

    def iterate(current, candidate):
        sweep, log_uniform = candidate
        ratio = log_evidences[sweep] - log_evidences[current]
        # A collapsed sweep (log p̂ = -inf) is left at once, also for another such, whose ratio is NaN.
        moves = (log_uniform < ratio) | jnp.isneginf(log_evidences[current])
        current = jnp.where(moves, sweep, current)
        return current, current

    start = jnp.asarray(0, jnp.int32)
    candidates = (jnp.arange(1, len(log_evidences), dtype=jnp.int32), log_uniforms)
    _, rest = jax.lax.scan(iterate, start, candidates)
    return jnp.concatenate([start[None], rest])
