"""Transforms against numerical differentiation and integration."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats

from mcfo.errors import InputError
from mcfo.transforms import BoxCox, Log, Logit, Transformed, read_transform

CASES = {
    "log": (Log(), [0.02, 0.7, 3.0, 900.0]),
    "box-cox": (BoxCox(0.3, 20.0), [0.02, 0.7, 3.0, 900.0]),
    "box-cox negative": (BoxCox(-0.4, 2.0), [0.2, 0.7, 3.0, 9.0]),
    "box-cox near zero": (BoxCox(1e-7, 3.0), [0.02, 0.7, 3.0, 900.0]),
    "box-cox zero": (BoxCox(0.0, 3.0), [0.02, 0.7, 3.0, 900.0]),
    "logit": (Logit(-2.0, 5.0), [-1.9, 0.0, 3.0, 4.99]),
}


@pytest.mark.parametrize("name", CASES)
def test_jacobian_and_inverse(name):
    transform, points = CASES[name]
    points = jnp.array(points)
    low, high = transform.range
    steps = 1e-6 * jnp.minimum(points - low, high - points)
    slopes = (transform.forward(points + steps) - transform.forward(points - steps)) / (2 * steps)
    np.testing.assert_allclose(jnp.exp(transform.log_jacobian(points)), slopes, rtol=1e-7)
    np.testing.assert_allclose(transform.inverse(transform.forward(points)), points, rtol=1e-10)
    assert np.all(np.isfinite(jax.vmap(jax.grad(transform.forward))(points)))


@pytest.mark.parametrize("name", CASES)
def test_laws_come_back_to_the_unit_of_the_data(name):
    transform, points = CASES[name]
    mean, variance = transform.forward(jnp.array(points[1])), jnp.array(0.09)
    if isinstance(transform, BoxCox):
        variance = variance * transform.center**2 / 4
    normal = stats.norm(float(mean), float(variance) ** 0.5)
    expected = integrate.quad(
        lambda y: float(transform.inverse(jnp.array(y))) * normal.pdf(y), *normal.interval(1 - 1e-14)
    )[0]
    np.testing.assert_allclose(transform.mean(mean, variance), expected, rtol=1e-6)
    quantile = transform.quantile(0.8, mean, variance)
    np.testing.assert_allclose(transform.forward(quantile), normal.ppf(0.8), rtol=1e-9)
    distribution = Transformed(dist.Normal(mean, variance**0.5), transform)
    np.testing.assert_allclose(distribution.mean, expected, rtol=1e-6)
    low, high = (float(transform.inverse(jnp.array(y))) for y in normal.interval(1 - 1e-12))
    total = integrate.quad(lambda x: float(jnp.exp(distribution.log_prob(jnp.array(x)))), low, high, limit=200)[0]
    np.testing.assert_allclose(total, 1.0, rtol=1e-6)


def test_the_power_is_differentiable_at_zero():
    score = jax.grad(lambda power: BoxCox(power, 2.0).forward(jnp.array(5.0)))
    logarithm = np.log(2.5)
    np.testing.assert_allclose(score(0.0), 2.0 * logarithm**2 / 2, rtol=1e-9)
    np.testing.assert_allclose(score(1e-3), score(0.0), rtol=2e-3)


def test_beyond_the_image_of_the_transform_is_its_end():
    assert float(BoxCox(0.5, 1.0).inverse(jnp.array(-50.0))) < 1e-20
    assert np.isfinite(jax.grad(BoxCox(0.5, 1.0).inverse)(jnp.array(-50.0)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Log().check([3.0, np.nan, 0.0]), "0 has no logarithm: values must lie above 0."),
        (lambda: Logit(0, 100).check([3.0, 100.0]), "100 has no logit: values must lie between 0 and 100."),
        (lambda: Logit(3, 1), "must be two increasing numbers, but got 3 and 1"),
        (lambda: BoxCox(0.5, 0.0), "must be positive, but got 0.0"),
        (lambda: read_transform("lag"), "There is no transform 'lag'. Did you mean 'log'?"),
        (lambda: read_transform("log", power=0.3), "The transform log has no power."),
        (lambda: read_transform("log", bounds=(0, 1)), "The transform log has no range."),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(InputError, match=re.escape(message)):
        call()
