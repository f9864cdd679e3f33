"""Particle Gibbs smoothing: few particles, exact in the long run; of a model with memory too."""

import jax
import numpy as np
import pytest

from mcfo import ConditionalSMC, Series, kalman_filter, kalman_smoother, smooth
from mcfo.errors import InputError
from mcfo.inference import gibbs_series
from mcfo.proposals import Bootstrap
from support.memory import Remembering
from support.problems import data, scalar_model


@pytest.mark.ci
def test_states_and_missing_values_by_particle_gibbs():
    model, series = scalar_model(), data(scalar_model(), 6, missing=True, seed=3)
    exact = kalman_smoother(model, series)
    dataset = smooth(model, Bootstrap(), [series], method="particle-gibbs", particles=20, paths=4000, draws=3)
    assert dataset.attrs["method"] == "particle-gibbs"
    # The autocorrelation of the chain is below a half: errors are those of at least a third of the paths.
    scale = np.sqrt(exact.variance()[:, 0] * 3 / 4000)
    assert (np.abs(dataset["latent_mean"].values[0, :6, 0] - exact.mean[:, 0]) < 4.5 * scale).all()
    filled = dataset["filled"].values[0, :6, 0]
    np.testing.assert_allclose(filled[1], 1.2 * exact.mean[1, 0], atol=1.2 * 4.5 * scale[1])
    # Negative control: the filtered means are elsewhere.
    assert (np.abs(kalman_filter(model, series).filtered.mean[:, 0] - exact.mean[:, 0]) > 4.5 * scale).any()


@pytest.mark.ci
def test_a_model_with_memory_keeps_what_it_imputed():
    values = np.array([[1, np.nan], [0, 0], [np.nan, 1]])
    found = gibbs_series(
        Remembering(),
        Bootstrap(),
        Series.from_values(values),
        key=jax.random.key(0),
        sampler=ConditionalSMC(4),
        paths=8,
        burn_in=2,
        draws=4,
    )
    assert found.draws is not None
    assert set(np.unique(found.draws.observations)) <= {0.0, 1.0}


def test_an_unknown_method_is_refused():
    with pytest.raises(InputError, match="particle-gibbs"):
        smooth(scalar_model(), Bootstrap(), [data(scalar_model(), 3)], method="particle-gibs")
