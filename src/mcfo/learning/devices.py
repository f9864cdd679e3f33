"""One host device for each core, and the mesh over which a batch is shared."""

from __future__ import annotations

import os
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mcfo.errors import InputError


def use_every_core(devices: int | None = None) -> None:
    """Makes one JAX device of each core, so that [`fit`][] shares its batches over them.

    Call it before anything else of JAX runs: once JAX has started, the number of devices stands. The command line does
    so by itself.

    **Arguments:**

    - `devices`: how many; by default the cores that this process may use.
    """
    wanted = devices or cores()
    try:
        jax.config.update("jax_num_cpu_devices", wanted)
    except RuntimeError as error:
        if jax.local_device_count() != wanted:
            raise RuntimeError(
                f"JAX has started with {jax.local_device_count()} devices, so there cannot be {wanted} any more. Call "
                "use_every_core() first, before any array is made."
            ) from error


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def choose_devices(wanted: int | None, series_list: int) -> int:
    """How many devices share so many series: a divisor, each has as many as the others."""
    available = jax.local_device_count()
    if wanted is None:
        return max(count for count in range(1, available + 1) if series_list % count == 0)
    if wanted > available:
        raise InputError(
            f"{wanted} devices are wanted, but JAX has {available}. In Python, call mcfo.use_every_core({wanted}) "
            "before "
            "anything else; or ask for fewer."
        )
    if series_list % wanted:
        raise InputError(
            f"A batch of {series_list} series cannot be shared by {wanted} devices. Choose a multiple of {wanted}, or "
            "fewer devices."
        )
    return wanted


def build_mesh(devices: int, axis: str) -> Mesh:
    """The first devices in a row."""
    return Mesh(np.array(jax.local_devices()[:devices]), (axis,))


def replicate_on(mesh: Mesh, tree: Any) -> Any:
    """The arrays of a tree on every device of a mesh, so that each call of a program finds them alike."""
    whole = NamedSharding(mesh, PartitionSpec())

    def placed(leaf: Any) -> Any:
        if not eqx.is_array(leaf):
            return leaf
        # A type that is weak (of a Python number) would compile a program of its own.
        weak = isinstance(leaf, jax.Array) and leaf.weak_type
        return jax.device_put(np.asarray(leaf) if weak else leaf, whole)

    return jax.tree.map(placed, tree)
