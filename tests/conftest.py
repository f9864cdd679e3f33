"""Tests run in float64 unless they say otherwise, so that exact statements can be tested exactly."""

import gc
import importlib.metadata
import os
from pathlib import Path

# Most of the time goes into compiling hundreds of small programs: like this it takes a quarter as long. An unknown flag
# would end the process, so the second one is for the versions that are known to have it.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_backend_optimization_level=1"
    + (" --xla_cpu_use_fusion_emitters=false" if importlib.metadata.version("jaxlib").startswith("0.10.") else "")
)

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
