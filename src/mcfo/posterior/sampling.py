"""Sampling a posterior: from the number of particles to the last draw, with checkpoints in between."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from mcfo.data.batching import as_buckets
from mcfo.data.npz import read_arrays, write_npz
from mcfo.errors import InputError, OtherRunError
from mcfo.files import read_json, write_atomically
from mcfo.inference.datasets import named_series
from mcfo.inference.exact_laws import uses_exact_laws
from mcfo.learning.coordinates import Coordinates
from mcfo.learning.estimated_likelihood import Estimator, choose_particles
from mcfo.learning.parameters import digest
from mcfo.learning.prior_families import prior_text
from mcfo.learning.priors import Priors
from mcfo.learning.results import Fitted
from mcfo.learning.run_folder import data_digest, differences, lock
from mcfo.learning.uncertainty import model_uncertainty
from mcfo.models.base import Model
from mcfo.posterior.chains import CHUNK, Chains, Iterations, advance, covariance_times, usual_log_scale, with_covariance
from mcfo.posterior.result import Posterior
from mcfo.posterior.target import Target, densities
from mcfo.proposals.base import Proposal
from mcfo.smc.filter import SMC
from mcfo.validation import float_dtype

_TAG = 0x706D6D68
"""Separates the random numbers of chains from those of filters and fits."""
_SPREAD = 2.0
"""Standard deviations of the posterior over which chains start, so that R-hat can tell that they have not met."""
_UNKNOWN_SCALE = 0.1
"""The first step of a stored number about which the information says nothing: a tenth of a logarithm."""
_TRIES = 12
CHECKPOINT_SECONDS = 10.0

Progress = Callable[[int, int, str], Any]
"""Called with the number of iterations so far, that of all, and a few words."""


class Plan(NamedTuple):
    """What determines the chains of a posterior, beside model, data and priors."""

    chains: int
    warmup: int
    draws: int
    seed: int

    def check(self) -> None:
        """Refuse numbers with which nothing can be said."""
        if self.chains < 2:
            raise InputError(
                f"R-hat compares chains with one another, but {self.chains} is asked for. Ask for two or more (on the "
                "command line, --chains)."
            )
        for name, value, least in (("warmup", self.warmup, 50), ("draws", self.draws, 10)):
            if value < least:
                raise InputError(f"{name} must be at least {least}, but got {value}.")


def sample_posterior(
    learned: Fitted | tuple[Model, Proposal],
    data: Any = None,
    *,
    priors: Mapping[str, Any] | None = None,
    fixed: Sequence[str] | None = None,
    chains: int = 4,
    warmup: int = 1000,
    draws: int = 2000,
    particles: int | None = None,
    method: str | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    about: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Posterior:
    """Draw the learned parameters of a model from their posterior, by Metropolis-Hastings from the fitted values.

    Where the likelihood is known exactly it is used. Otherwise each step is accepted by an unbiased estimate of it from
    a filter with the learned proposal (particle marginal Metropolis-Hastings), which leaves the posterior exact
    whatever the number of particles. Andrieu, Doucet and Holenstein (2010).

    **Arguments:**

    - `learned`: a [`Fitted`][], or a model and its proposal.
    - `data`: the series, as [`fit`][] takes them; by default those of the fit.
    - `priors`: priors by the names of the parameters, "half-normal:1" or a distribution of numpyro; by default those of
      the fit. A parameter without one has a flat prior on the scale on which people mean it.
    - `fixed`: the parameters that stay as they are; by default those of the fit.
    - `chains`, `warmup`, `draws`: the number of chains, side by side; the iterations of each in which steps are
      adapted, and after them the draws that are returned.
    - `particles`: K; by default so many that the variance of log p̂ is near one.
    - `method`: "exact" or "particles"; by default exact where that is possible and `particles` is not given.
    - `out`: a folder for checkpoints and draws; `resume` continues what was interrupted there, bit-identically.
    - `progress`: called with the number of iterations so far, that of all, and a few words.
    """
    if isinstance(learned, Fitted):
        data = learned.buckets if data is None else data
        priors = learned.settings.priors if priors is None else priors
        fixed = learned.settings.fixed if fixed is None else fixed
        learned = (learned.model, learned.proposal)
    elif data is None:
        raise InputError("There are no data. Call sample_posterior((model, proposal), data).")
    plan, report = Plan(chains, warmup, draws, seed), progress or (lambda *_: None)
    plan.check()
    model, proposal = learned
    coordinates = Coordinates.build(model, fixed or ())
    usable = Priors.build(priors or {}, coordinates)
    buckets = as_buckets(data if _holds_series(data) else named_series(data).series_list)
    known = uses_exact_laws(model, method, particles)
    sampler = None if known else SMC(particles or 1)
    target, key = Target(coordinates, usable, proposal, buckets, sampler), jax.random.key(seed)
    key = jax.random.fold_in(key, _TAG)
    config = {
        **dict(about or {}),
        **plan._asdict(),
        "exact": known,
        "particles": particles,
        "precision": "float64" if known else str(float_dtype()),
        "priors": {name: prior_text(prior) for name, prior in (priors or {}).items()},
        "fixed": list(fixed or ()),
        "model": digest(model),
        "proposal": digest(proposal),
        "data_sha256": data_digest(buckets),
    }
    folder = None if out is None else _Folder(Path(out), config, resume=resume)
    saved = None if folder is None else folder.restore()
    if saved is None:
        saved = _start(target, plan, particles, fixed or (), key, report)
    if saved.particles is not None:
        target = _with_particles(target, saved.particles)
    try:
        saved = _sample(target, plan, saved, key, folder, report, checkpoint_seconds)
    finally:
        if folder is not None:
            folder.close()
    points, log_priors, log_likelihoods, accepted = (
        np.swapaxes(array[plan.warmup :], 0, 1) for array in saved.recorded
    )
    config |= {"particles": saved.particles, "log_evidence_variance": saved.variance}
    posterior = Posterior(
        coordinates,
        proposal,
        points,
        log_priors + log_likelihoods,
        log_likelihoods,
        np.mean(accepted, axis=1),
        config,
    )
    if folder is not None:
        posterior.save(folder.path / "draws.nc")
    return posterior


def _holds_series(data: Any) -> bool:
    return isinstance(data, list | tuple) or type(data).__name__ == "Series"


class _Saved(NamedTuple):
    """All that the next iteration needs: the chains, everything that was recorded, K and the variance of log p̂."""

    chains: Chains
    recorded: Iterations
    particles: int | None
    variance: float | None


def _with_particles(target: Target, particles: int) -> Target:
    return dataclasses.replace(target, sampler=SMC(particles))


def _estimator(target: Target) -> Estimator:
    assert target.sampler is not None
    return Estimator(target.coordinates, target.proposal, target.data, target.sampler)


def _start(
    target: Target, plan: Plan, particles: int | None, fixed: Sequence[str], key: Any, report: Progress
) -> _Saved:
    """Choose the number of particles, the first steps and the points where the chains start."""
    total = plan.warmup + plan.draws
    coordinates, of_variance, of_points = target.coordinates, *jax.random.split(jax.random.fold_in(key, total + 1))
    vector, variance = np.asarray(coordinates.vector()), None
    if target.sampler is not None:
        report(0, total, "choosing the number of particles")
        if particles is None:
            particles, variance = choose_particles(_estimator(target), vector, key=of_variance)
        else:
            variance = _estimator(target).variance(vector, key=of_variance)
        target = _with_particles(target, particles)
    report(0, total, "computing the first steps")
    known = model_uncertainty(
        coordinates.model(vector), target.proposal, target.data, fixed=fixed, priors=target.priors
    )
    factor = _factor(None if known is None else known.covariance, len(vector)).astype(vector.dtype)
    points, priors, likelihoods = _starting_points(target, vector, factor, plan.chains, of_points)
    scale = np.asarray(usual_log_scale(len(vector)), vector.dtype)
    chains = Chains(points, priors.astype(vector.dtype), likelihoods.astype(vector.dtype), scale, factor)
    empty = np.zeros((0, plan.chains), vector.dtype)
    nothing = Iterations(np.zeros((0, *points.shape), vector.dtype), empty, empty, empty.astype(bool))
    return _Saved(chains, nothing, particles, variance)


def _factor(covariance: np.ndarray | None, size: int) -> np.ndarray:
    """Return a factor of the covariance of the first steps."""
    if covariance is None:
        return _UNKNOWN_SCALE * np.eye(size)
    # Directions without information have no variance there.
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    least = max(1e-6 * float(values.max()), np.finfo(float).tiny)
    values = np.where(values > least, values, _UNKNOWN_SCALE**2)
    return np.linalg.cholesky((vectors * values) @ vectors.T)


def _starting_points(target: Target, vector: np.ndarray, factor: np.ndarray, chains: int, key: Any) -> Any:
    """Return where the chains start, spread around the fitted θ, with their log-priors and log-likelihoods."""
    of_points, of_likelihoods = jax.random.split(key)
    away = np.asarray(jax.random.normal(of_points, (chains, len(vector))), vector.dtype) @ factor.T
    keys = jax.random.split(of_likelihoods, chains)
    for attempt in range(_TRIES):
        points = (vector + _SPREAD * 0.5**attempt * away).astype(vector.dtype)
        priors, likelihoods = densities(target, points, keys)
        good = np.isfinite(priors + likelihoods)
        if good.all():
            return points, priors, likelihoods
        away[good] *= 2.0
    raise InputError(
        "The posterior density is not finite near the fitted parameters. Widen the priors, fix parameters that the "
        "data do not determine, or use more particles."
    )


def _sample(
    target: Target, plan: Plan, saved: _Saved, key: Any, folder: _Folder | None, report: Progress, seconds: float
) -> _Saved:
    """Run what is left of the warm-up and of the draws."""
    chains, total, started = saved.chains, plan.warmup + plan.draws, time.perf_counter()
    parts, times, done = [saved.recorded], covariance_times(plan.warmup), len(saved.recorded.points)
    while done < total:
        # Every stop is one of the plan's, so that a resumed run makes the same ones.
        stops = sorted({*times, plan.warmup, total})
        before = max((one for one in (0, *times) if one <= done), default=0)
        end = next(one for one in stops if one > done)
        count = min(CHUNK, end - done)
        chains, new = advance(target, chains, done, count, since=done - before, adapts=done < plan.warmup, key=key)
        parts.append(new)
        done += count
        if done in times:
            recorded = _joined(parts)
            parts = [recorded]
            window = recorded.points[before:done]
            chains = with_covariance(chains, window.reshape(-1, window.shape[-1]).astype(np.float64))
        rate = float(np.mean(new.accepted))
        report(done, total, f"{'warm-up' if done < plan.warmup else 'draws'}, {rate:.0%} accepted")
        if folder is not None and (done == total or time.perf_counter() - started > seconds):
            parts = [_joined(parts)]
            folder.checkpoint(_Saved(chains, parts[0], saved.particles, saved.variance))
            started = time.perf_counter()
    return _Saved(chains, _joined(parts), saved.particles, saved.variance)


def _joined(parts: list[Iterations]) -> Iterations:
    return Iterations(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


class _Folder:
    """A folder with `config.json`, `checkpoint.npz` and at the end `draws.nc`."""

    def __init__(self, path: Path, config: Mapping[str, Any], *, resume: bool):
        self.path = path
        content = json.loads(json.dumps(config))
        if path.exists() and not path.is_dir():
            raise InputError(f"{path} is not a folder. Choose another one.")
        if resume and (path / "config.json").exists():
            different = [one for one in differences(content, read_json(path / "config.json")) if one[0] != "command"]
            if different:
                shown = "; ".join(f"{name} was {old!r} and is {new!r}" for name, new, old in different[:4])
                raise OtherRunError(
                    f"{path} holds another posterior: {shown}. Resume with the same model, data, priors and numbers, "
                    "or choose another folder."
                )
        elif path.exists() and any(one.name != ".lock" for one in path.iterdir()):
            raise InputError(
                f"{path} exists already. Choose another folder, or resume what is in it: --resume (in Python, "
                "resume=True)."
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = lock(path / ".lock")
            write_atomically(path / "config.json", (json.dumps(content, indent=2) + "\n").encode())
        except OSError as error:
            raise InputError(f"Cannot write into {path}: {error.strerror}. Choose another folder.") from error

    def restore(self) -> _Saved | None:
        """Return where an interrupted run stands; None if it had not begun."""
        path = self.path / "checkpoint.npz"
        if not path.exists():
            return None
        arrays = read_arrays(path)
        try:
            chains = Chains(*(arrays[f"chains.{name}"] for name in _FIELDS))
            recorded = Iterations(*(arrays[name] for name in Iterations._fields))
            particles, variance = int(arrays["particles"]), float(arrays["variance"])
        except KeyError as error:
            raise InputError(f"{path} is damaged: it lacks {error}. Delete the folder, and start again.") from error
        return _Saved(chains, recorded, particles or None, None if np.isnan(variance) else variance)

    def checkpoint(self, saved: _Saved) -> None:
        """Save all that the next iteration needs."""
        arrays = {f"chains.{name}": np.asarray(getattr(saved.chains, name)) for name in _FIELDS}
        arrays |= saved.recorded._asdict()
        arrays |= {
            "particles": np.asarray(saved.particles or 0),
            "variance": np.asarray(np.nan if saved.variance is None else saved.variance),
        }
        write_npz(self.path / "checkpoint.npz", arrays)

    def close(self) -> None:
        """Let others use the folder."""
        self._lock.close()


_FIELDS = ("points", "log_priors", "log_likelihoods", "log_scale", "factor")
