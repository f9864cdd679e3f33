"""Cholesky factors and triangular systems in plain arithmetic, without LAPACK.

XLA:CPU spreads a batch of LAPACK calls over its thread pool and blocks a thread of that pool until the batch is done.
Two such batches in one program can occupy all threads and wait for each other for ever (jaxlib 0.10, two cores). So
nothing that runs inside a compiled loop calls LAPACK. Small matrices are unrolled into arithmetic that XLA fuses;
larger ones go through a scan, whose program does not grow with the matrix.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mcfo.types import Scalar

UNROLLED = 8
"""The largest size that is unrolled. The number of operations grows with its cube, and compile time with that."""


def cholesky(matrix: Float[Array, "size size"]) -> Float[Array, "size size"]:
    """L, lower triangular with L Lᵀ = A; not a number where A is not positive definite."""
    # As jnp.linalg has it: the gradient is that of a function of symmetric matrices.
    symmetric = (matrix + matrix.T) / 2
    return _unrolled_cholesky(symmetric) if len(matrix) <= UNROLLED else _scanned_cholesky(symmetric)


def solve_lower(factor: Float[Array, "size size"], right: Float[Array, "size ..."]) -> Float[Array, "size ..."]:
    """L⁻¹ b by forward substitution; what is above the diagonal of L is not read."""
    return _unrolled_solve(factor, right) if len(factor) <= UNROLLED else _scanned_solve(factor, right)


def solve_positive_definite(
    factor: Float[Array, "size size"], right: Float[Array, "size ..."]
) -> Float[Array, "size ..."]:
    """A⁻¹ b, where `factor` is the Cholesky factor of A."""
    half = solve_lower(factor, right)
    # Backward substitution is forward substitution with the order of rows and columns reversed.
    return solve_lower(factor.T[::-1, ::-1], half[::-1])[::-1]


def gaussian_log_density(residual: Float[Array, " size"], factor: Float[Array, "size size"]) -> Scalar:
    """log N(residual; 0, L Lᵀ)."""
    whitened = solve_lower(factor, residual)
    log_determinant = jnp.sum(jnp.log(jnp.abs(jnp.diagonal(factor))))
    return -0.5 * jnp.sum(whitened**2) - log_determinant - 0.5 * len(residual) * jnp.log(2 * jnp.pi)


def _unrolled_cholesky(matrix: Array) -> Array:
    size = len(matrix)
    factor = [[jnp.zeros((), matrix.dtype)] * size for _ in range(size)]
    for row in range(size):
        for column in range(row + 1):
            rest = matrix[row, column]
            for before in range(column):
                rest = rest - factor[row][before] * factor[column][before]
            factor[row][column] = jnp.sqrt(rest) if row == column else rest / factor[column][column]
    return jnp.stack([jnp.stack(row) for row in factor])


def _unrolled_solve(factor: Array, right: Array) -> Array:
    solution = []
    for row in range(len(factor)):
        rest = right[row]
        for column, entries in enumerate(solution):
            rest = rest - factor[row, column] * entries
        solution.append(rest / factor[row, row])
    return jnp.stack(solution)


@jax.custom_jvp
def _scanned_cholesky(matrix: Array) -> Array:
    rows = jnp.arange(len(matrix))

    def add_column(factor: Array, column: Array) -> tuple[Array, None]:
        rest = matrix[:, column] - factor @ factor[column]
        entries = jnp.where(rows >= column, rest / jnp.sqrt(rest[column]), 0.0)
        return factor.at[:, column].set(entries), None

    return jax.lax.scan(add_column, jnp.zeros_like(matrix), rows)[0]


@_scanned_cholesky.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    # dL = L Φ(L⁻¹ dA L⁻ᵀ), where Φ takes the lower triangle and halves the diagonal. Murray (2016), equation 8.
    factor = _scanned_cholesky(*primals)
    inner = solve_lower(factor, solve_lower(factor, *tangents).T)
    return factor, factor @ (jnp.tril(inner) - jnp.diag(jnp.diagonal(inner)) / 2)


@jax.custom_jvp
def _scanned_solve(factor: Array, right: Array) -> Array:
    def add_row(solution: Array, now: tuple[Array, Array, Array]) -> tuple[Array, None]:
        row, coefficients, entries = now
        return solution.at[row].set((entries - coefficients @ solution) / coefficients[row]), None

    rows = jnp.arange(len(factor)), factor, right
    return jax.lax.scan(add_row, jnp.zeros_like(right), rows)[0]


@_scanned_solve.defjvp
def _(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    # The scan is linear in b, so the tangent is another one; L itself is never differentiated through the scan.
    factor, right = primals
    change, right_change = tangents
    solution = _scanned_solve(factor, right)
    return solution, _scanned_solve(factor, right_change - jnp.tril(change) @ solution)
