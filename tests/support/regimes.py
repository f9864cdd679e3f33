"""Models with regimes, and their truth: sums over all paths of regimes."""

import itertools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mcfo import MarkovModel, Series, simulate
from mcfo.models import (
    CategoricalEmission,
    GaussianEmission,
    HiddenMarkov,
    LinearGaussian,
    PoissonEmission,
    SwitchingLinearGaussian,
)

TRANSITION = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]]
EMISSIONS = {
    "gaussian": lambda: GaussianEmission(
        [[-1.0, 0.5], [0.5, 0.0], [2.0, 1.5]], [[0.8, 1.0], [0.5, 0.7], [1.2, 0.4]], least=0.1
    ),
    "poisson": lambda: PoissonEmission([[0.5, 3.0], [2.0, 1.0], [6.0, 4.0]]),
    "categorical": lambda: CategoricalEmission(
        [[[0.7, 0.2, 0.1], [0.3, 0.3, 0.4]], [[0.2, 0.6, 0.2], [0.1, 0.8, 0.1]], [[0.1, 0.1, 0.8], [0.5, 0.2, 0.3]]]
    ),
}


def hidden_markov(emission="gaussian", *, initial=None):
    return HiddenMarkov(EMISSIONS[emission](), transition_probabilities=TRANSITION, initial_probabilities=initial)


def gappy(model, steps=5, *, seed=0):
    """A simulated series of which a step and a half are missing."""
    _, values = simulate(model, steps, key=jax.random.key(seed))
    values = np.array(values, float)
    values[1] = np.nan
    if values.shape[1] > 1:
        values[3, 0] = np.nan
    return Series.from_values(values)


class Paths(NamedTuple):
    """All paths of regimes, and log p(z_1:T, x_1:T) of each."""

    paths: np.ndarray
    log_joint: jax.Array


def all_paths(count, steps):
    return np.array(list(itertools.product(range(count), repeat=steps)))


def enumerated(model, series):
    """Every path of a hidden Markov model, from its probabilities and its emission's parameters."""
    values = series.values()
    return Paths(all_paths(model.finite_states, len(values)), _log_joint(model, values))


@eqx.filter_jit
def _log_joint(model, values):
    paths = all_paths(model.finite_states, len(values))
    log_a, log_pi = jnp.log(model.chain.transition_probabilities), jnp.log(model.chain.initial_probabilities)
    known = ~jnp.isnan(values)
    filled = jnp.where(known, values, 0.0)[:, None]
    emission = model.emissions
    if isinstance(emission, GaussianEmission):
        terms = jax.scipy.stats.norm.logpdf(filled, emission.mean, emission.standard_deviation)
    elif isinstance(emission, PoissonEmission):
        terms = jax.scipy.stats.poisson.logpmf(filled, emission.rate)
    else:
        codes = jnp.arange(emission.probabilities.shape[-1])
        chosen = jnp.where(codes == filled[..., None], emission.probabilities, 0.0).sum(axis=-1)
        terms = jnp.log(jnp.where(known[:, None], chosen, 1.0))
    log_likelihoods = jnp.sum(jnp.where(known[:, None], terms, 0.0), axis=-1)
    moves = log_a[paths[:, :-1], paths[:, 1:]].sum(axis=1)
    seen = log_likelihoods[np.arange(len(values)), paths].sum(axis=1)
    return log_pi[paths[:, 0]] + moves + seen


def switching(dimensions=1):
    """Two regimes, far apart in level, persistence and noise."""
    if dimensions == 1:
        calm = {"transition_matrix": 0.9, "transition_noise": 0.3, "emission_offset": [0.0], "emission_noise": 0.2}
        wild = {"transition_matrix": -0.4, "transition_noise": 2.0, "emission_offset": [1.5], "emission_noise": 0.5}
        shared = {"initial_mean": 0.3, "initial_noise": 1.0, "emission_matrix": 1.2, "transition_offset": [0.2]}
    else:
        calm = {
            "transition_matrix": [[0.9, 0.1], [0.0, 0.8]],
            "transition_noise": [[0.3, 0.1], [0.1, 0.4]],
            "emission_offset": [0.0, 0.5],
            "emission_noise": [[0.2, 0.05], [0.05, 0.3]],
        }
        wild = {
            "transition_matrix": [[-0.3, 0.0], [0.2, 0.5]],
            "transition_noise": [[1.5, -0.2], [-0.2, 0.8]],
            "emission_offset": [1.0, -1.0],
            "emission_noise": [[0.6, 0.0], [0.0, 0.5]],
        }
        shared = {
            "initial_mean": [0.3, 0.0],
            "initial_noise": [[1.0, 0.2], [0.2, 1.0]],
            "emission_matrix": [[1.0, 0.4], [0.0, 1.0]],
        }
    return SwitchingLinearGaussian(
        [LinearGaussian(**shared, **one) for one in (calm, wild)],
        transition_probabilities=[[0.8, 0.2], [0.4, 0.6]],
        initial_probabilities=[0.6, 0.4],
    )


def enumerated_switching(model, series):
    """Every path of a switching model: x_1:T given the path is one Gaussian vector, whose moments are written out."""
    values = series.values()
    known = np.flatnonzero(~np.isnan(values.ravel()))
    paths = all_paths(model.count, len(values))
    return Paths(paths, _switching_log_joint(model, values, tuple(map(int, known)), paths))


@eqx.filter_jit
def _switching_log_joint(model, values, known, paths):
    known = np.asarray(known)
    log_a, log_pi = jnp.log(model.chain.transition_probabilities), jnp.log(model.chain.initial_probabilities)
    densities = jax.vmap(lambda path: _path_density(model, values, known, path))(paths)
    moves = log_a[paths[:, :-1], paths[:, 1:]].sum(axis=1)
    return log_pi[paths[:, 0]] + moves + densities


def _path_density(model, values, known, path):
    regimes = [jax.tree.map(lambda array, k=k: array[k], model.regimes) for k in path]
    means, covariances = [regimes[0].initial_mean], [regimes[0].initial_noise.matrix]
    crossed = {(0, 0): covariances[0]}
    for t, regime in enumerate(regimes[1:], 1):
        offset = 0.0 if regime.transition_offset is None else regime.transition_offset
        means.append(regime.transition_matrix @ means[-1] + offset)
        for s in range(t):
            crossed[t, s] = regime.transition_matrix @ crossed[t - 1, s]
            crossed[s, t] = crossed[t, s].T
        crossed[t, t] = regime.transition_matrix @ crossed[t - 1, t] + regime.transition_noise.matrix
    mean = jnp.concatenate([r.emission_matrix @ m + r.emission_offset for r, m in zip(regimes, means, strict=True)])
    steps = range(len(path))
    covariance = jnp.block(
        [
            [
                regimes[t].emission_matrix @ crossed[t, s] @ regimes[s].emission_matrix.T
                + (regimes[t].emission_noise.matrix if s == t else 0.0)
                for s in steps
            ]
            for t in steps
        ]
    )
    return jax.scipy.stats.multivariate_normal.logpdf(values.ravel()[known], mean[known], covariance[known][:, known])


class PlainSwitching(MarkovModel):
    """The same model with the state in the latent too, (regime, state): what Rao-Blackwellization is compared with."""

    marginalized: SwitchingLinearGaussian

    def initial(self, memory, inputs):
        model = self.marginalized
        return RegimeAndState(model.chain.log_initial, lambda one: one.initial(None, inputs), model.regimes)

    def transition(self, memory, inputs):
        model = self.marginalized
        log_probabilities = model.chain.log_transition[memory[0].astype(int)]
        return RegimeAndState(log_probabilities, lambda one: one.transition(memory[1:], inputs), model.regimes)

    def emission(self, memory, latent, inputs):
        regime = jax.tree.map(lambda array: array[latent[0].astype(int)], self.marginalized.regimes)
        return regime.emission(None, latent[1:], inputs)


class RegimeAndState:
    """A regime, and a state given it, in one vector."""

    def __init__(self, log_probabilities, state, regimes):
        self.log_probabilities, self.state, self.regimes = log_probabilities, state, regimes

    def _given(self, regime):
        return self.state(jax.tree.map(lambda array: array[regime], self.regimes))

    def sample(self, key, sample_shape=()):
        of_regime, of_state = jax.random.split(key)
        regime = jax.random.categorical(of_regime, self.log_probabilities)
        return jnp.append(regime.astype(float), self._given(regime).sample(of_state))

    def log_prob(self, value):
        regime = value[0].astype(int)
        return self.log_probabilities[regime] + self._given(regime).log_prob(value[1:])
