"""Rates by width: one of a layer's updates is as large a share of its weights as another's."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mcfo
from mcfo.networks import rectified

KEY = jax.random.key(0)


def first_move(settings, network):
    """Of the weights between hidden layers by one update, relative to their size."""
    weight = network.layers[1].weight
    optimizer = settings.transformation()
    gradient = jax.random.normal(KEY, weight.shape)
    update, _ = optimizer.update(gradient, optimizer.init(weight), weight)
    return float(jnp.sqrt(jnp.mean(update**2) / jnp.mean(weight**2)))


@pytest.mark.parametrize("width", [16, 1024])
def test_weights_move_by_the_same_share_of_their_size_whatever_the_width(width):
    network = rectified(3, width, 50, 1, key=KEY)
    moved = {rates: first_move(mcfo.Settings(rates=rates), network) for rates in ("equal", "by-width")}
    assert moved["by-width"] == pytest.approx(0.01, rel=0.1)
    # The negative control: with equal rates a wide layer moves by far more of its size.
    assert moved["equal"] == pytest.approx(0.01 * (width / 2) ** 0.5, rel=0.1)


def test_what_is_no_matrix_keeps_its_rate():
    parameters = {"weight": jnp.ones((2, 8)), "bias": jnp.ones(3), "number": jnp.ones(())}
    optimizer = mcfo.Settings(optimizer="sgd", learning_rate=1.0, rates="by-width", clip=100.0).transformation()
    update, _ = optimizer.update(parameters, optimizer.init(parameters), parameters)
    np.testing.assert_allclose(update["weight"], -0.5)
    np.testing.assert_allclose(update["bias"], -1.0)
    np.testing.assert_allclose(update["number"], -1.0)


def test_an_optimiser_made_in_python_has_them_too():
    optimizer = mcfo.Settings(optimizer=optax.sgd(1.0), rates="by-width").transformation()
    for inputs, share in ((18, 1 / 3), (1, 1.0)):
        weight = jnp.ones((1, inputs))
        update, _ = optimizer.update(weight, optimizer.init(weight), weight)
        np.testing.assert_allclose(update, -share)
