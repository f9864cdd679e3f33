"""Cholesky factors and triangular systems in plain arithmetic, without LAPACK.

XLA:CPU spreads a batch of LAPACK calls over its thread pool and blocks a thread of that pool until the batch is done.
Two such batches in one program can occupy all threads and wait for each other for ever (jaxlib 0.10, two cores). So
nothing that runs inside a compiled loop calls LAPACK. Small matrices are unrolled into arithmetic that XLA fuses;
larger ones go through a scan, whose program does not grow with the matrix. Neither is differentiated step by step: the
derivative of a factor or a solution is made of solutions with the same factor.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mcfo.types import Scalar

UNROLLED = 5
"""The largest size that is unrolled. At size 8 the unrolled gradient takes twice as long to compile as the scanned one,
at 12 three times, and is not faster (100 particles, with a factor for each or one for all)."""


def cholesky(matrix: Float[Array, "size size"]) -> Float[Array, "size size"]:
    """L, lower triangular with L Lᵀ = A; not a number where A is not positive definite."""
    # As jnp.linalg has it: the gradient is that of a function of symmetric matrices.
    return _cholesky((matrix + matrix.T) / 2)


@jax.custom_jvp
def solve_lower(factor: Float[Array, "size size"], right: Float[Array, "size ..."]) -> Float[Array, "size ..."]:
    """L⁻¹ b by forward substitution; what is above the diagonal of L is not read."""
    # Both forms multiply by the reciprocal of the diagonal, as BLAS does: one division for all columns of b.
    return _unrolled_solve(factor, right) if len(factor) <= UNROLLED else _scanned_solve(factor, right)


@solve_lower.defjvp
def _(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    # Forward substitution is linear in b, so that JAX can transpose this tangent for reverse mode.
    factor, right = primals
    change, right_change = tangents
    solution = solve_lower(factor, right)
    return solution, solve_lower(factor, right_change - jnp.tril(change) @ solution)


def solve_positive_definite(
    factor: Float[Array, "size size"], right: Float[Array, "size ..."]
) -> Float[Array, "size ..."]:
    """A⁻¹ b, where `factor` is the Cholesky factor of A."""
    # The barriers keep XLA from contracting both divisions into one by L²; rounding is that of LAPACK.
    factor = jax.lax.optimization_barrier(factor)
    half = jax.lax.optimization_barrier(solve_lower(factor, right))
    # Backward substitution is forward substitution with the order of rows and columns reversed.
    return solve_lower(factor.T[::-1, ::-1], half[::-1])[::-1]


def gaussian_log_density(residual: Float[Array, " size"], factor: Float[Array, "size size"]) -> Scalar:
    """log N(residual; 0, L Lᵀ)."""
    whitened = solve_lower(factor, residual)
    log_determinant = jnp.sum(jnp.log(jnp.abs(jnp.diagonal(factor))))
    return -0.5 * jnp.sum(whitened**2) - log_determinant - 0.5 * len(residual) * jnp.log(2 * jnp.pi)


@jax.custom_jvp
def _cholesky(matrix: Array) -> Array:
    return _unrolled_cholesky(matrix) if len(matrix) <= UNROLLED else _scanned_cholesky(matrix)


@_cholesky.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    # dL = L Φ(L⁻¹ dA L⁻ᵀ), where Φ takes the lower triangle and halves the diagonal. Murray (2016), equation 8.
    factor = _cholesky(*primals)
    inner = solve_lower(factor, solve_lower(factor, *tangents).T)
    return factor, factor @ (jnp.tril(inner) - jnp.diag(jnp.diagonal(inner)) / 2)


def _unrolled_cholesky(matrix: Array) -> Array:
    columns = []
    for column in range(len(matrix)):
        root = jnp.sqrt(matrix[0, 0])
        below = matrix[1:, 0] / root
        columns.append(jnp.pad(jnp.append(root, below), (column, 0)))
        matrix = matrix[1:, 1:] - jnp.outer(below, below)
    return jnp.stack(columns, axis=1)


def _scanned_cholesky(matrix: Array) -> Array:
    rows = jnp.arange(len(matrix))

    def add_column(factor: Array, column: Array) -> tuple[Array, None]:
        rest = matrix[:, column] - factor @ factor[column]
        root = jnp.sqrt(rest[column])
        below = jnp.where(rows > column, rest / root, 0.0)
        return factor.at[:, column].set(jnp.where(rows == column, root, below)), None

    return jax.lax.scan(add_column, jnp.zeros_like(matrix), rows)[0]


def _unrolled_solve(factor: Array, right: Array) -> Array:
    solution = []
    for row in range(len(factor)):
        solution.append(right[0] * (1 / factor[row, row]))
        right = right[1:] - jnp.multiply.outer(factor[row + 1 :, row], solution[-1])
    return jnp.stack(solution)


def _scanned_solve(factor: Array, right: Array) -> Array:
    rows = jnp.arange(len(factor))

    def next_row(rest: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        row, column = now
        entries = rest[row] * (1 / column[row])
        return rest - jnp.multiply.outer(jnp.where(rows > row, column, 0.0), entries), entries

    return jax.lax.scan(next_row, right, (rows, factor.T))[1]


def unit_lower_factor(matrix: Float[Array, "size size"]) -> tuple[Float[Array, "size size"], Float[Array, " size"]]:
    """L and d with A = L diag(d) Lᵀ and ones on the diagonal of L, for a positive semidefinite A.

    A pivot that is zero up to rounding is zero, and so is what is below it.
    """
    rows = jnp.arange(len(matrix))
    least = 10 * len(matrix) * jnp.finfo(matrix.dtype).eps * jnp.diagonal(matrix)

    def add_column(factor: Array, column: Array) -> tuple[Array, tuple[Array, Array]]:
        # `factor` has the columns L_j sqrt(d_j).
        rest = matrix[:, column] - factor @ factor[column]
        positive = rest[column] > least[column]
        pivot = jnp.where(positive, rest[column], 1.0)
        below = jnp.where((rows > column) & positive, rest / pivot, 0.0)
        unit = jnp.where(rows == column, 1.0, below)
        root = jnp.where(positive, jnp.sqrt(pivot), 0.0)
        return factor.at[:, column].set(unit * root), (unit, jnp.where(positive, pivot, 0.0))

    columns, pivots = jax.lax.scan(add_column, jnp.zeros_like(matrix), rows)[1]
    return columns.T, pivots


def semidefinite_factor(matrix: Float[Array, "size size"]) -> Float[Array, "size size"]:
    """L, lower triangular with L Lᵀ = A, for a positive semidefinite A."""
    factor, pivots = unit_lower_factor(matrix)
    positive = pivots > 0
    return factor * jnp.where(positive, jnp.sqrt(jnp.where(positive, pivots, 1.0)), 0.0)
