"""Reading numbers from users: what is not a table of real numbers is refused, with its position."""

import math
import sys
from typing import Any

import numpy as np


def float_dtype() -> np.dtype:
    """Return the floating-point type of JAX's current precision; its default where nothing has imported JAX."""
    jax = sys.modules.get("jax")
    return np.dtype(np.float32) if jax is None else jax.numpy.result_type(float)


def read_table(values: Any, name: str) -> np.ndarray:
    """Read an array of numbers with a leading time axis and one column for each dimension."""
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(float), np.nan) if np.ma.is_masked(values) else values.data
    try:
        table = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"The {name} are not a table: {error}. Give every step the same number of values.") from error
    if table.dtype == object:
        table = _numbers(table, name)
    if table.dtype == bool:
        table = table.astype(np.int32)
    if not (np.issubdtype(table.dtype, np.floating) or np.issubdtype(table.dtype, np.integer)):
        raise ValueError(
            f"The {name} have dtype {table.dtype}, but real numbers are wanted. Convert them to float (NaN for "
            "what is missing) or to int first."
        )
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2:
        raise ValueError(
            f"The {name} have shape {table.shape}, but (steps, dimensions) is wanted, or (steps,) for one "
            "dimension. Reshape each step to a vector; for several series build one Series each and stack() them."
        )
    if table.size == 0:
        raise ValueError(
            f"There are no {name}: shape {table.shape} has {table.shape[0]} steps and {table.shape[1]} dimensions. "
            "Give at least one step of at least one dimension."
        )
    counts = np.issubdtype(table.dtype, np.integer) and np.abs(table, dtype=float).max() < 2**31
    if counts:
        return table.astype(np.int32)
    limit = float_dtype()
    with np.errstate(over="ignore"):
        overflowed = np.isinf(table.astype(limit)) & np.isfinite(table)
    if overflowed.any():
        row, column = (int(index) for index in np.argwhere(overflowed)[0])
        raise ValueError(
            f"{name}[{row}, {column}] = {table[row, column]:g} is too large for {limit}. Rescale the column, "
            'or call jax.config.update("jax_enable_x64", True) first.'
        )
    return table.astype(np.float64)


def _numbers(table: np.ndarray, name: str) -> np.ndarray:
    """Convert an array of Python objects to floats; None is NaN."""
    for index in np.ndindex(table.shape):
        if table[index] is not None and not isinstance(table[index], int | float | np.number):
            raise ValueError(
                f"{name}[{', '.join(map(str, index))}] is {table[index]!r}, but real numbers are wanted, with NaN or "
                "None for what is missing. Convert or drop that column."
            )
    return table.astype(float)


def read_index(value: Any, name: str) -> int:
    """Read a non-negative number of 31 bits."""
    if not hasattr(value, "__index__") or not 0 <= int(value) < 2**31:
        raise ValueError(f"{name} must be a whole number from 0 to 2147483647, but got {value!r}.")
    return int(value)


def read_mask(observed: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Read a mask with one flag for each step, or for each step and dimension."""
    mask = np.asarray(observed)
    if mask.dtype != bool:
        raise ValueError(
            f"The mask `observed` has dtype {mask.dtype}, but bool is wanted. Use `observed=values_are_known == 1`, "
            "or NaN in the values."
        )
    if mask.shape == shape[:1]:
        mask = mask[:, None]
    if mask.ndim != 2 or mask.shape[0] != shape[0] or mask.shape[1] not in (1, shape[1]):
        raise ValueError(
            f"The mask `observed` has shape {mask.shape}, but the observations have shape {shape}. Give one flag "
            f"for each step, {shape[:1]}, or for each step and dimension, {shape}."
        )
    return np.broadcast_to(mask, shape)


def require_finite(table: np.ndarray, mask: np.ndarray | None, name: str) -> None:
    """Refuse infinite numbers, except where the mask is False."""
    infinite = np.isinf(table) if mask is None else np.isinf(table) & mask
    if infinite.any():
        row, column = (int(index) for index in np.argwhere(infinite)[0])
        raise ValueError(
            f"{name}[{row}, {column}] is infinite ({int(infinite.sum())} such values in all). Correct it, or set it "
            "to NaN if it is missing."
        )


def largest_value() -> float:
    """Return the largest number whose square is finite: likelihoods square what they read."""
    return math.sqrt(np.finfo(float_dtype()).max)


def too_large(value: str, if_missing: str) -> str:
    """Say that a value cannot be squared, and what to do."""
    return (
        f"{value} is too large: its square overflows {float_dtype()}. If it stands for a missing value, {if_missing}; "
        "otherwise rescale the column."
    )
