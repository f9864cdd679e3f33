"""Evaluation of a model and its proposal: likelihood, effective sample size, one-step predictions."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mcfo import exact
from mcfo.data.batching import Buckets, as_buckets
from mcfo.gradients.rules import has_networks
from mcfo.inference.evaluation_results import Evaluation
from mcfo.inference.exact_evaluation import exact_evaluation
from mcfo.inference.exact_laws import uses_exact_laws
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.smc.filter import SMC
from mcfo.smc.noise import step_key
from mcfo.smc.resampling import Always
from mcfo.smc.step import Outcome
from mcfo.smc.step_scan import step_scan
from mcfo.smc.trace import Record, State
from mcfo.smc.weights import uniform_log_weights
from mcfo.types import HostArray, Key, Memory, Scalar

_PREDICTION_TAG = 0x70726564
_AT_ONCE = 2**23
"""The largest number of particles times dimensions over the series that are filtered at once; networks need a few times
as much memory."""
_REPEATS = 4
"""Filters of each series for the standard error of a likelihood."""
_LEAST_DIMENSIONS = 80
"""The least number of dimensions in that product."""


class Scores(eqx.Module):
    """The scores of each series from one filter run."""

    log_evidence: Float[Array, "*series"]
    steps: Int[Array, "*series"]
    observed_steps: Int[Array, "*series"]
    ess_sum: Float[Array, "*series"]
    ess_least: Float[Array, "*series"]
    squared_error: Float[Array, "*series"]
    values: Int[Array, "*series"]


def evaluation_sampler(particles: int) -> SMC:
    """A filter that resamples before every step, so that the effective sample size measures the proposal alone."""
    return SMC(particles, criterion=Always())


def evaluate(
    model: Model,
    proposal: Proposal,
    data: Any,
    *,
    particles: int | None = None,
    method: str | None = None,
    predictions: bool = True,
    repeats: int = 1,
    key: Key | None = None,
) -> Evaluation:
    """Return the likelihood of every series and the error of one-step predictions.

    A model whose distributions are known is evaluated exactly, unless particles are asked for. Otherwise every series
    is filtered, and the likelihood is an estimate. Series of a list are batched by similar lengths, which changes none.

    **Arguments:**

    - `particles`: the number of particles; 500 by default where there is no exact answer.
    - `method`: "exact" or "particles"; by default exact where that is possible and `particles` is not given.
    - `key`: of the random numbers of the filter; by default that of seed 0.
    - `repeats`: the number of independent filters of each series. With two or more the likelihood is the logarithm of
      the mean of their estimates, and has a standard error.
    - `predictions`: whether to compute `prediction_rmse`, which takes up to half of the time and changes nothing else.
    """
    buckets = as_buckets(data)
    if uses_exact_laws(model, method, particles):
        return exact_evaluation(model, buckets)
    particles, key = particles or 500, jax.random.key(0) if key is None else key
    predicts = predictions and has_predictions(model, buckets[0])
    runs = repeated_scores(model, proposal, buckets, particles=particles, repeats=repeats, predicts=predicts, key=key)
    known = exact_evaluation(model, buckets).nll_per_step if exact.is_exact(model) else None
    return combined(runs, particles, known, predicts=predicts)


def repeated_scores(
    model: Model,
    proposal: Proposal,
    buckets: Buckets,
    *,
    particles: int,
    repeats: int,
    predicts: bool,
    key: Key,
    scale: HostArray | None = None,
) -> list[Scores]:
    """Return the scores of every series from each of several independent filters.

    **Arguments:**

    - `scale`: the unit of each column, in which squared errors are measured; by default one.
    """
    sampler, runs = evaluation_sampler(particles), []
    for repeat in range(repeats):
        own = key if repeat == 0 else jax.random.fold_in(key, repeat)
        batches = [_all_scores(sampler, model, proposal, batch, own, predicts, scale) for batch in buckets]
        runs.append(jax.tree.map(lambda *arrays: np.concatenate(arrays), *batches))
    return runs


def combined(runs: list[Scores], particles: int, exact_nll: float | None, *, predicts: bool) -> Evaluation:
    """Combine the scores of independent filters."""
    scores = jax.tree.map(lambda *arrays: np.mean(arrays, axis=0), *runs)
    log_evidence, error = _combined(np.stack([one.log_evidence for one in runs]).astype(np.float64))
    least = np.min([one.ess_least for one in runs], axis=0)
    scores = eqx.tree_at(lambda one: (one.log_evidence, one.ess_least), scores, (log_evidence, least))
    return summarize(scores, particles, exact_nll, predicts=predicts)._replace(log_evidence_error=error)


def usual_repeats(model: Model, proposal: Proposal) -> int:
    """Return how many filters give a likelihood its standard error: several where they are cheap, otherwise one."""
    return 1 if has_networks(model, proposal) else _REPEATS


def _combined(log_evidences: np.ndarray) -> tuple[np.ndarray, float | None]:
    """Return the logarithm of the mean p̂ of each series, from (repeats, series), and the standard error of their sum.

    The mean of p̂ is unbiased, so that its logarithm is nearer to the truth than the mean of the logarithms; its error
    is the relative one of the mean, to first order.
    """
    repeats = len(log_evidences)
    if repeats == 1:
        return log_evidences[0], None
    largest = log_evidences.max(axis=0)
    if not np.all(np.isfinite(log_evidences)):
        return np.where(np.isfinite(log_evidences).all(axis=0), largest, log_evidences.min(axis=0)), None
    ratios = np.exp(log_evidences - largest)
    mean = ratios.mean(axis=0)
    relative = ratios.std(axis=0, ddof=1) / np.sqrt(repeats) / mean
    return largest + np.log(mean), float(np.sqrt(np.sum(relative**2)))


def series_scores(
    sampler: SMC,
    model: Model,
    proposal: Proposal,
    batch: Series,
    *,
    key: Key,
    predict: bool = False,
    scale: HostArray | None = None,
) -> Scores:
    """Return the scores of each series, some series at a time so that memory does not grow with their number."""

    def one(series: Series) -> Scores:
        def visit(before: State | None, outcome: Outcome, frame: Frame, extra: None) -> tuple[Record, Scalar]:
            dtype = outcome.increment.dtype
            error = jnp.zeros(())
            if predict:
                error = _squared_error(model, before, frame, sampler.particles, key, dtype, scale)
            return outcome.record, error

        _, (record, errors) = step_scan(sampler, model, proposal, series, visit, key=key)
        exists = series.present()
        exists = jnp.ones(series.steps, bool) if exists is None else exists
        # A collapsed filter continues with equal weights, which are meaningless.
        ess = jnp.where(record.finite, record.ess, 0.0)
        return Scores(
            log_evidence=jnp.sum(record.log_evidence),
            steps=jnp.sum(exists),
            observed_steps=jnp.sum(jnp.any(series.mask(), axis=-1)),
            ess_sum=jnp.sum(jnp.where(exists, ess, 0.0)),
            ess_least=jnp.min(jnp.where(exists, ess, jnp.inf)),
            squared_error=jnp.sum(errors),
            values=jnp.sum(series.mask()),
        )

    return jax.lax.map(one, batch, batch_size=series_at_once(batch, sampler.particles))


def series_at_once(batch: Series, particles: int) -> int:
    """Return how many series are filtered at once, so that memory does not grow with their number."""
    return max(1, _AT_ONCE // (particles * max(batch.observations.shape[-1], _LEAST_DIMENSIONS)))


@eqx.filter_jit
def exact_nll_per_step(model: Model, batch: Series) -> Scalar:
    """Return -Σ log p(x_1:T) over a batch of series for each step at which something was observed, exactly."""
    log_evidence = jax.vmap(lambda one: exact.log_evidence(model, one))(batch)
    return -jnp.sum(log_evidence) / jnp.sum(jnp.any(jax.vmap(Series.mask)(batch), axis=-1))


def summarize(scores: Scores, particles: int, exact_nll: float | None, *, predicts: bool) -> Evaluation:
    """Summarize the scores of all series."""
    log_evidence, steps = float(np.sum(scores.log_evidence)), int(np.sum(scores.observed_steps))
    collapsed = int(np.sum(~np.isfinite(scores.log_evidence)))
    known = predicts and not collapsed
    rmse = math.sqrt(float(np.sum(scores.squared_error)) / int(np.sum(scores.values))) if known else None
    return Evaluation(
        log_evidence=log_evidence,
        nll_per_step=-log_evidence / steps,
        ess=float(np.sum(scores.ess_sum)) / int(np.sum(scores.steps)),
        ess_min=float(np.min(scores.ess_least)),
        particles=particles,
        prediction_rmse=rmse,
        series=len(scores.steps),
        steps=steps,
        collapsed=collapsed,
        exact_nll_per_step=exact_nll,
    )


def has_predictions(model: Model, batch: Series) -> bool:
    """Whether emissions have a mean of the right shape to predict with."""
    inputs = None if batch.inputs is None else jnp.asarray(batch.inputs[0, 0])

    def mean(model: Model, inputs: Any) -> Any:
        memory = model.start(inputs)
        latent = model.initial(memory, inputs).sample(jax.random.key(0))
        return model.emission(memory, latent, inputs).mean  # pyright: ignore[reportAttributeAccessIssue]

    try:
        return eqx.filter_eval_shape(mean, model, inputs).shape == batch.observations.shape[2:]
    except (AttributeError, NotImplementedError):
        return False


_all_scores = eqx.filter_jit(
    lambda sampler, model, proposal, batch, key, predict, scale: series_scores(
        sampler, model, proposal, batch, key=key, predict=predict, scale=scale
    )
)


def _squared_error(
    model: Model, before: State | None, frame: Frame, particles: int, key: Key, dtype: Any, scale: HostArray | None
) -> Scalar:
    """The squared error of the prediction of x_t from the state before it, summed over what was observed."""

    def predicted(memory: Memory, key: Key) -> Array:
        prior = (model.initial if before is None else model.transition)(memory, frame.inputs)
        return model.emission(memory, prior.sample(key), frame.inputs).mean  # pyright: ignore[reportAttributeAccessIssue]

    keys = jax.random.split(jax.random.fold_in(step_key(key, frame), _PREDICTION_TAG), particles)
    memory = model.start(frame.inputs) if before is None else before.memory
    log_weights = uniform_log_weights(particles, dtype) if before is None else before.log_weights
    predictions = jax.vmap(predicted, in_axes=(None if before is None else 0, 0))(memory, keys)
    error = (jnp.exp(log_weights) @ predictions - frame.observation) ** 2
    if scale is not None:
        error = error * jnp.asarray(scale, error.dtype) ** 2
    if frame.observed is not None:
        error = jnp.where(frame.observed, error, 0.0)
    return frame.unless_padding(jnp.sum(error), jnp.zeros(()))
