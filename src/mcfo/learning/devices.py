"""One host device for each core, and the mesh over which a batch is divided."""

from __future__ import annotations

import os
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mcfo.errors import InputError


def use_every_core(devices: int | None = None) -> None:
    """Create one JAX device for each core, so that [`fit`][] divides its batches among them.

    Call this before anything else of JAX runs: once JAX has started, the number of devices is fixed. The command line
    calls it by itself.

    **Arguments:**

    - `devices`: the number of devices; by default the cores that this process may use.
    """
    wanted = devices or cores()
    try:
        jax.config.update("jax_num_cpu_devices", wanted)
    except RuntimeError as error:
        if jax.local_device_count() != wanted:
            raise RuntimeError(
                f"JAX has started with {jax.local_device_count()} devices, so there cannot be {wanted} any more. Call "
                "use_every_core() first, before any array is created."
            ) from error


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def choose_devices(wanted: int | None, batch: int) -> int:
    """Return the number of devices that share a batch: a divisor of its size."""
    available = jax.local_device_count()
    if wanted is None:
        return max(count for count in range(1, available + 1) if batch % count == 0)
    if wanted > available:
        raise InputError(
            f"{wanted} devices are wanted, but JAX has {available}. In Python, call mcfo.use_every_core({wanted}) "
            "before anything else; or ask for fewer."
        )
    if batch % wanted:
        raise InputError(
            f"A batch of {batch} series cannot be shared by {wanted} devices. Choose a multiple of {wanted}, or "
            "fewer devices."
        )
    return wanted


def build_mesh(devices: int, axis: str) -> Mesh:
    """Return a mesh of the first devices."""
    return Mesh(np.array(jax.local_devices()[:devices]), (axis,))


def replicate_on(mesh: Mesh, tree: Any) -> Any:
    """Copy the arrays of a tree to every device of a mesh, so that every call of a program has the same shardings."""
    whole = NamedSharding(mesh, PartitionSpec())

    def placed(leaf: Any) -> Any:
        if not eqx.is_array(leaf):
            return leaf
        # A weak type (that of a Python number) would compile another program.
        weak = isinstance(leaf, jax.Array) and leaf.weak_type
        return jax.device_put(np.asarray(leaf) if weak else leaf, whole)

    return jax.tree.map(placed, tree)
