"""Factors and triangular systems without LAPACK: the same values and gradients as jnp.linalg."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from mcfo import linear_algebra
from mcfo.missing import fill, log_prob, observed_log_prob
from support.lowering import lapack_calls_in_loops

SIZES = [1, 2, linear_algebra.UNROLLED, linear_algebra.UNROLLED + 1, 20]


def close(actual, wanted):
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10), actual, wanted)


def positive_definite(size, seed=0):
    root = np.random.default_rng(seed).standard_normal((size, size + 2))
    return jnp.asarray(root @ root.T / size + 0.5 * np.eye(size))


def both_ways(function, *arguments):
    """The value and, by random cotangents and tangents, its derivatives by all arguments, backward and forward."""
    rng = np.random.default_rng(1)
    tangents = tuple(jnp.asarray(rng.standard_normal(argument.shape)) for argument in arguments)
    cotangent = jnp.asarray(rng.standard_normal(jax.eval_shape(function, *arguments).shape))

    @jax.jit
    def derive(arguments, tangents, cotangent):
        value, pull = jax.vjp(function, *arguments)
        return value, pull(cotangent), jax.jvp(function, arguments, tangents)[1]

    return derive(arguments, tangents, cotangent)


@pytest.mark.parametrize("size", SIZES)
def test_cholesky(size):
    matrix = positive_definite(size)
    close(both_ways(linear_algebra.cholesky, matrix), both_ways(jnp.linalg.cholesky, matrix))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("columns", [(), (3,)], ids=["vector", "matrix"])
def test_solve_lower(size, columns):
    factor = jnp.asarray(np.linalg.cholesky(positive_definite(size)) + np.triu(np.full((size, size), 7.0), 1))
    right = jnp.asarray(np.random.default_rng(2).standard_normal((size, *columns)))
    close(
        both_ways(linear_algebra.solve_lower, factor, right),
        both_ways(lambda *arguments: jsp.solve_triangular(*arguments, lower=True), factor, right),
    )


@pytest.mark.parametrize("size", SIZES)
def test_solve_positive_definite(size):
    right = jnp.asarray(np.random.default_rng(2).standard_normal((size, 2)))
    close(
        both_ways(
            lambda matrix, right: linear_algebra.solve_positive_definite(linear_algebra.cholesky(matrix), right),
            *(positive_definite(size), right),
        ),
        both_ways(
            lambda matrix, right: jnp.linalg.solve((matrix + matrix.T) / 2, right), positive_definite(size), right
        ),
    )


@pytest.mark.parametrize("size", [3, 12])
def test_second_derivatives(size):
    def log_density(cholesky, density, residual, matrix):
        return density(residual, cholesky(matrix))

    def reference(residual, factor):
        return dist.MultivariateNormal(jnp.zeros(size), scale_tril=factor).log_prob(residual)

    residual, matrix = jnp.linspace(-1.0, 1.0, size), positive_definite(size)
    ours = jax.hessian(lambda *a: log_density(linear_algebra.cholesky, linear_algebra.gaussian_log_density, *a))
    theirs = jax.hessian(lambda *a: log_density(jnp.linalg.cholesky, reference, *a))
    close(jax.jit(ours)(residual, matrix), jax.jit(theirs)(residual, matrix))


@pytest.mark.parametrize("size", [2, 12])
def test_what_is_not_positive_definite_is_not_a_number(size):
    assert np.isnan(linear_algebra.cholesky(jnp.eye(size).at[1, 1].set(-1.0))).any()


@pytest.mark.parametrize("size", [1, 4, 12])
def test_density_of_many_particles(size):
    """The density by `log_prob` is numpyro's, for a factor for each particle and for one that they share."""
    rng = np.random.default_rng(3)
    factors = jnp.asarray(np.linalg.cholesky([positive_definite(size, seed) for seed in range(4)]))
    means, values = map(jnp.asarray, rng.standard_normal((2, 4, size)))

    for axis, factor in ((0, factors), (None, factors[0])):

        def ours(means, factor, values, axis=axis):
            one = lambda mean, factor, value: log_prob(dist.MultivariateNormal(mean, scale_tril=factor), value)  # noqa: E731
            return jax.vmap(one, in_axes=(0, axis, 0))(means, factor, values)

        def theirs(means, factor, values):
            return dist.MultivariateNormal(means, scale_tril=factor).log_prob(values)

        close(both_ways(ours, means, factor, values), both_ways(theirs, means, factor, values))


@pytest.mark.parametrize("size", [4, 12])
def test_marginal_and_conditional_of_the_observed_part(size):
    covariance, (mean, value) = np.asarray(positive_definite(size)), np.random.default_rng(4).standard_normal((2, size))
    seen = np.arange(size) % 3 != 1

    @jax.jit
    def ours(mean, factor, value, seen):
        normal = dist.MultivariateNormal(mean, scale_tril=factor)
        return observed_log_prob(normal, value, seen), fill(normal, mean, value, seen)

    log_density, filled = ours(mean, np.linalg.cholesky(covariance), value, seen)
    part = covariance[seen][:, seen]
    close(log_density, stats.multivariate_normal(mean[seen], part).logpdf(value[seen]))
    shift = covariance[~seen][:, seen] @ np.linalg.solve(part, value[seen] - mean[seen])
    close(filled[seen], value[seen])
    close(filled[~seen], mean[~seen] + shift)


@pytest.mark.parametrize("size", [4, 12])
def test_no_lapack_in_a_loop(size):
    def loop(covariances, values, seen):
        def step(total, now):
            covariance, value = now
            normal = dist.MultivariateNormal(jnp.zeros(size), scale_tril=linear_algebra.cholesky(covariance))
            filled = fill(normal, jnp.zeros(size), value, seen)
            return total + log_prob(normal, filled) + observed_log_prob(normal, value, seen), None

        return jax.lax.scan(step, 0.0, (covariances, values))[0]

    arguments = np.stack([positive_definite(size)] * 2), np.ones((2, size)), np.arange(size) > 1
    assert not lapack_calls_in_loops(jax.jit(jax.grad(loop)).lower(*arguments))
