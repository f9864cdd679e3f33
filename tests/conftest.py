"""Tests run in float64 unless they say otherwise, so that exact statements can be tested exactly."""

import gc
import os
from pathlib import Path

# Most of the time goes into compiling hundreds of small programs, which takes less with few optimizations. The option
# is JAX's own: XLA's flags change with jaxlib, and XLA ends the process at a flag that it does not know. As a variable
# of the environment it also reaches the commands that tests start.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")

import jax
import pytest

jax.config.update("jax_enable_x64", True)

_MOST_MAPS = 20_000


def _maps() -> int:
    """Pieces of memory that this process has mapped, where the system tells."""
    known = Path("/proc/self/maps")
    return known.read_bytes().count(b"\n") if known.exists() else 0


@pytest.fixture(autouse=True)
def forget_programs():
    """Lets go of compiled programs once there are thousands: each maps some pieces of memory, of which Linux allows a
    process 65530 by default, and LLVM does not survive the last of them."""
    yield
    if _maps() > _MOST_MAPS:
        jax.clear_caches()
        gc.collect()
