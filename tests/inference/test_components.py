"""Components of structural models in data sets: against statsmodels, by particles against the exact ones."""

import jax
import numpy as np
import pytest
import statsmodels.api as sm
from scipy.stats import norm

from mcfo import SMC, Series, smooth
from mcfo.errors import InputError
from mcfo.inference import components, smooth_series
from mcfo.models import GaussianStructural, LinearGaussian, Regression, Season, Trend, structural
from mcfo.proposals import Bootstrap, Linearized
from support.means import assert_mean, standard_errors


def monthly(steps=40):
    generator = np.random.default_rng(5)
    values = 20 + np.cumsum(generator.normal(size=steps)) + 3 * np.sin(np.arange(steps) * np.pi / 2)
    values[[3, 17]] = np.nan
    return values


def test_smoothed_components_and_their_intervals_are_those_of_statsmodels():
    values = monthly()
    model = GaussianStructural(trend=Trend(level_scale=0.8), seasons=(Season(4, scale=0.2),), irregular_scale=0.5)
    found = components(model, Bootstrap(), values, levels=(0.05, 0.5, 0.95))
    assert found["component_mean"].dims == ("series", "time", "component")
    assert found["component"].values.tolist() == ["level", "season 4"]
    theirs = sm.tsa.UnobservedComponents(values, "local level", seasonal=4, use_exact_diffuse=True)
    result = theirs.smooth([0.25, 0.64, 0.04])
    for name, one in (("level", result.level), ("season 4", result.seasonal)):
        ours = found.sel(component=name).isel(series=0)
        np.testing.assert_allclose(ours["component_mean"], one["smoothed"], rtol=1e-6, atol=1e-7)
        half = norm.ppf(0.95) * np.sqrt(one["smoothed_cov"])
        low, center, high = ours["component_quantiles"].values.T
        np.testing.assert_allclose(center, one["smoothed"], rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose((center - low, high - center), (half, half), rtol=1e-5, atol=1e-7)
    # The same variables are in the data set of smooth.
    np.testing.assert_array_equal(smooth(model, Bootstrap(), values)["component_mean"], found["component_mean"])


def proper(initial_state):
    return GaussianStructural(
        trend=Trend(level_scale=0.6),
        seasons=(Season(3, scale=0.3),),
        regression=Regression(1, scale=0.2),
        irregular_scale=0.7,
        initial_state=initial_state,
        initial_scale=0.8,
        diffuse=False,
    )


@pytest.mark.ci
def test_components_by_particles_have_the_exact_means_and_variances():
    """The season's second entry has no noise: particles carry it in their memory."""
    values, inputs = np.array([1.2, 0.3, np.nan, 1.9, 0.4, -0.7]), np.linspace(-1, 1, 6)[:, None]
    series, model = Series.from_values(values, inputs=inputs), proper([1.0, 0.5, -0.2, 0.3])
    exact = components(model, Bootstrap(), series, levels=(0.1587,)).isel(series=0)
    draws = {"paths": 300, "sampler": SMC(300)}

    def drawn(model):
        proposal = Linearized(model)
        keys = [jax.random.key(seed) for seed in range(60)]
        found = [smooth_series(model, proposal, series, key=key, levels=(0.1587,), **draws).components for key in keys]
        return np.stack([one.mean for one in found]), np.stack([one.quantiles[:, 0] for one in found])

    means, quantiles = drawn(model)
    assert_mean(means, exact["component_mean"].values)
    # A quantile of 300 paths is biased by less than a tenth of the spread.
    spread = (exact["component_mean"] - exact["component_quantiles"][:, 0]).values
    np.testing.assert_allclose(quantiles.mean(axis=0), exact["component_quantiles"][:, 0], atol=0.1 * spread.max())
    # Seasons that start elsewhere fail the same test.
    other, _ = drawn(proper([1.0, 0.5, 0.3, 0.3]))
    assert np.max(standard_errors(other, exact["component_mean"].values)) > 5


@pytest.mark.ci
def test_counts_have_components_by_particles():
    steps = np.arange(36)
    counts = np.random.default_rng(0).poisson(np.exp(2.5 + 0.8 * np.sin(steps * np.pi / 3)))
    model = structural(season=6, emission="poisson")
    found = components(model, Bootstrap(), counts, particles=200, paths=50)
    assert found["component"].values.tolist() == ["level", "season 6"]
    total = found["component_mean"].sum("component")[0].values
    assert np.corrcoef(total, np.sin(steps * np.pi / 3))[0, 1] > 0.8
    assert found.attrs["particles"] == 200


def test_models_without_components_say_so():
    with pytest.raises(InputError, match="A LinearGaussian has no components"):
        components(LinearGaussian.scalar(0.9, 1.0), Bootstrap(), np.zeros(5))
