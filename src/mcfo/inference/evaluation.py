"""Evaluation of a model and its proposal: likelihood, effective sample size, one-step predictions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mcfo.data.batching import Buckets, as_buckets, count_steps
from mcfo.exact import is_exact
from mcfo.exact import log_evidence as exact_log_evidence
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
from mcfo.types import Key, Memory, Scalar

_PREDICTION_TAG = 0x70726564
_AT_ONCE = 2**23
"""The largest number of particles times dimensions over the series that are filtered at once; networks need a few times
as much memory."""
_LEAST_DIMENSIONS = 80
"""The least number of dimensions in that product."""


class Scores(eqx.Module):
    """The scores of each series from one filter run."""

    log_evidence: Float[Array, "*series"]
    steps: Int[Array, "*series"]
    ess_sum: Float[Array, "*series"]
    ess_least: Float[Array, "*series"]
    squared_error: Float[Array, "*series"]
    values: Int[Array, "*series"]


class Evaluation(NamedTuple):
    """The evaluation of a data set.

    - `log_evidence`: Σ log p̂(x_1:T) over the series, and `nll_per_step` minus that over all steps.
    - `ess`, `ess_min`: the mean effective sample size over all steps, and its minimum.
    - `prediction_rmse`: root mean square of x_t - E[x_t | x_1:t-1] over the observed values; None if the emission has
      no mean, a filter collapsed, or it was not requested.
    - `collapsed`: the number of series whose evidence is not finite; `log_evidence` is then -inf or NaN.
    - `exact_nll_per_step`: the exact value, for a linear Gaussian or a hidden Markov model.
    """

    log_evidence: float
    nll_per_step: float
    ess: float
    ess_min: float
    particles: int
    prediction_rmse: float | None
    series: int
    steps: int
    collapsed: int
    exact_nll_per_step: float | None

    def as_data(self) -> dict[str, Any]:
        """Return data for JSON, with None for numbers that are not finite."""
        values = self._asdict()
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in values.items()
        }


def evaluation_sampler(particles: int) -> SMC:
    """A filter that resamples before every step, so that the effective sample size measures the proposal alone."""
    return SMC(particles, criterion=Always())


def evaluate(
    model: Model,
    proposal: Proposal,
    data: Series | Sequence[Series],
    *,
    particles: int = 500,
    predictions: bool = True,
    key: Key,
) -> Evaluation:
    """Filter every series with `particles` particles, and summarize the likelihood and the effective sample size.

    Series of a list are batched by similar lengths, which changes no likelihood.

    **Arguments:**

    - `predictions`: whether to compute `prediction_rmse`, which takes up to half of the time and changes nothing else.
    """
    buckets = as_buckets(data)
    predicts = predictions and has_predictions(model, buckets[0])
    sampler = evaluation_sampler(particles)
    batches = [_all_scores(sampler, model, proposal, batch, key, predicts) for batch in buckets]
    scores = jax.tree.map(lambda *arrays: np.concatenate(arrays), *batches)
    return summarize(scores, particles, exact_nll(model, buckets), predicts=predicts)


def series_scores(
    sampler: SMC, model: Model, proposal: Proposal, batch: Series, *, key: Key, predict: bool = False
) -> Scores:
    """Return the scores of each series, some series at a time so that memory does not grow with their number."""

    def one(series: Series) -> Scores:
        def visit(before: State | None, outcome: Outcome, frame: Frame, extra: None) -> tuple[Record, Scalar]:
            dtype = outcome.increment.dtype
            error = _squared_error(model, before, frame, sampler.particles, key, dtype) if predict else jnp.zeros(())
            return outcome.record, error

        _, (record, errors) = step_scan(sampler, model, proposal, series, visit, key=key)
        exists = series.present()
        exists = jnp.ones(series.steps, bool) if exists is None else exists
        # A collapsed filter continues with equal weights, which are meaningless.
        ess = jnp.where(record.finite, record.ess, 0.0)
        return Scores(
            log_evidence=jnp.sum(record.log_evidence),
            steps=jnp.sum(exists),
            ess_sum=jnp.sum(jnp.where(exists, ess, 0.0)),
            ess_least=jnp.min(jnp.where(exists, ess, jnp.inf)),
            squared_error=jnp.sum(errors),
            values=jnp.sum(series.mask()),
        )

    return jax.lax.map(one, batch, batch_size=series_at_once(batch, sampler.particles))


def series_at_once(batch: Series, particles: int) -> int:
    """Return how many series are filtered at once, so that memory does not grow with their number."""
    return max(1, _AT_ONCE // (particles * max(batch.observations.shape[-1], _LEAST_DIMENSIONS)))


def exact_nll(model: Model, buckets: Buckets) -> float | None:
    """Return -Σ log p(x_1:T) / Σ T by the Kalman filter or the forward algorithm; None where neither is exact."""
    if not is_exact(model):
        return None
    parts = [(exact_nll_per_step(model, batch), count_steps(batch)) for batch in buckets]
    return float(sum(float(nll) * steps for nll, steps in parts) / sum(steps for _, steps in parts))


@eqx.filter_jit
def exact_nll_per_step(model: Model, batch: Series) -> Scalar:
    """Return -Σ log p(x_1:T) / Σ T over a batch of series, exactly."""
    log_evidence = jax.vmap(lambda one: exact_log_evidence(model, one))(batch)
    steps = batch.observations.shape[0] * batch.observations.shape[1] if batch.length is None else jnp.sum(batch.length)
    return -jnp.sum(log_evidence) / steps


def summarize(scores: Scores, particles: int, exact: float | None, *, predicts: bool) -> Evaluation:
    """Summarize the scores of all series."""
    log_evidence, steps = float(np.sum(scores.log_evidence)), int(np.sum(scores.steps))
    collapsed = int(np.sum(~np.isfinite(scores.log_evidence)))
    known = predicts and not collapsed
    rmse = math.sqrt(float(np.sum(scores.squared_error)) / int(np.sum(scores.values))) if known else None
    return Evaluation(
        log_evidence=log_evidence,
        nll_per_step=-log_evidence / steps,
        ess=float(np.sum(scores.ess_sum)) / steps,
        ess_min=float(np.min(scores.ess_least)),
        particles=particles,
        prediction_rmse=rmse,
        series=len(scores.steps),
        steps=steps,
        collapsed=collapsed,
        exact_nll_per_step=exact,
    )


def has_predictions(model: Model, batch: Series) -> bool:
    """Whether emissions have a mean of the right shape to predict with."""
    inputs = None if batch.inputs is None else batch.inputs[0, 0]

    def mean(model: Model) -> Any:
        memory = model.start(inputs)
        latent = model.initial(memory, inputs).sample(jax.random.key(0))
        return model.emission(memory, latent, inputs).mean  # pyright: ignore[reportAttributeAccessIssue]

    try:
        return eqx.filter_eval_shape(mean, model).shape == batch.observations.shape[2:]
    except (AttributeError, NotImplementedError):
        return False


_all_scores = eqx.filter_jit(
    lambda sampler, model, proposal, batch, key, predict: series_scores(
        sampler, model, proposal, batch, key=key, predict=predict
    )
)


def _squared_error(model: Model, before: State | None, frame: Frame, particles: int, key: Key, dtype: Any) -> Scalar:
    """The squared error of the prediction of x_t from the state before it, summed over what was observed."""

    def predicted(memory: Memory, key: Key) -> Array:
        prior = (model.initial if before is None else model.transition)(memory, frame.inputs)
        return model.emission(memory, prior.sample(key), frame.inputs).mean  # pyright: ignore[reportAttributeAccessIssue]

    keys = jax.random.split(jax.random.fold_in(step_key(key, frame), _PREDICTION_TAG), particles)
    memory = model.start(frame.inputs) if before is None else before.memory
    log_weights = uniform_log_weights(particles, dtype) if before is None else before.log_weights
    predictions = jax.vmap(predicted, in_axes=(None if before is None else 0, 0))(memory, keys)
    error = (jnp.exp(log_weights) @ predictions - frame.observation) ** 2
    if frame.observed is not None:
        error = jnp.where(frame.observed, error, 0.0)
    return frame.unless_padding(jnp.sum(error), jnp.zeros(()))
