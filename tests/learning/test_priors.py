"""The mode of the posterior density, exactly and by particles."""

import jax
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

import mcfo
from mcfo import Series, exact, simulate
from mcfo.models import LinearGaussian
from mcfo.proposals import LocallyOptimal
from support.coverage import INITIAL, MATRICES, NOISES


@pytest.mark.ci
def test_the_exact_mode_is_that_of_scipy():
    """In the units of the data, although a fit without priors works in standard ones."""
    model = LinearGaussian.scalar(1.0, 1.0, transition_variance=0.5, emission_variance=0.8, initial_mean=0.0)
    values = 10 * np.asarray(simulate(model, 30, key=jax.random.key(0))[1])
    priors = {"transition_noise": "half-normal:2", "emission_noise": "gamma:3,1"}
    fitted = mcfo.fit(
        model, LocallyOptimal(model), [Series.from_values(values)], priors=priors, fixed=(*INITIAL, *MATRICES)
    )

    def minus_log_density(logs):
        one, two = np.exp(logs)
        own = LinearGaussian.scalar(1.0, 1.0, transition_variance=one**2, emission_variance=two**2, initial_mean=0.0)
        prior = stats.halfnorm.logpdf(one, scale=2) + stats.gamma.logpdf(two, 3)
        return -float(exact.log_evidence(own, Series.from_values(values))) - prior

    best = minimize(minus_log_density, np.log([2.0, 5.0]), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9})
    ours = [row.estimate for row in fitted.uncertainty.rows]
    np.testing.assert_allclose(ours, np.exp(best.x), rtol=1e-3)


@pytest.mark.ci
def test_a_narrow_prior_decides_by_particles():
    """The likelihood wants θ_1 near 0.9; a prior of a hundredth around 0.5 does not."""
    model = LinearGaussian.scalar(0.5, 1.0)
    truth = LinearGaussian.scalar(0.9, 1.0)
    series = [Series.from_values(np.asarray(simulate(truth, 30, key=jax.random.key(one))[1])) for one in range(4)]
    options = {"objective": mcfo.objectives.mcfo(20), "steps": 200, "batch": 2, "learning_rate": 0.02}
    options |= {"fixed": (*INITIAL, *NOISES, "model.emission_matrix", "proposal")}
    free = mcfo.fit(model, LocallyOptimal(model), series, **options)
    held = mcfo.fit(model, LocallyOptimal(model), series, priors={"transition_matrix": "normal:0.5,0.01"}, **options)
    assert free.model.transition_matrix[0, 0] > 0.7
    assert abs(held.model.transition_matrix[0, 0] - 0.5) < 0.1
