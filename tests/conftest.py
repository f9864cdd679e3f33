"""Tests run in float64 unless they say otherwise, so that exact statements can be tested exactly."""

import gc
import itertools
import os
from pathlib import Path

from support.xla import with_flags

# Most of the time goes into compiling hundreds of small programs. That takes less with few optimizations, half as long
# without XLA's fusion emitters, and less again where LLVM gets one module instead of up to 32 that share its start-up
# cost. Variables of the environment also reach the workers and the commands that tests start.
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")
os.environ["XLA_FLAGS"] = with_flags(
    os.environ.get("XLA_FLAGS", ""), "--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"
)

# Compiled programs are shared by the workers, by the commands that tests start, and by the next run. JAX reads these
# when it is imported.
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(Path(__file__).parent.parent / ".pytest_cache" / "programs")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
# Commands write the list of trusted code there.
os.environ["XDG_CONFIG_HOME"] = str(Path(__file__).parent.parent / ".pytest_cache" / "config")

import jax
import pytest

jax.config.update("jax_enable_x64", True)

# Tracing allocates many small objects that live on in JAX's caches. With Python's default thresholds, looking through
# them takes a tenth of the time.
gc.freeze()
gc.set_threshold(200_000, 50, 50)

_MOST_BYTES = 2 * 2**30
_MOST_MAPS = 35_000
_TESTS_A_COUNT = 8  # counting them takes 10 ms and more
_finished = itertools.count(1)


def pytest_sessionstart(session):
    """Removes the oldest compiled programs: every change of the source makes new ones."""
    folder = Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
    if "PYTEST_XDIST_WORKER" in os.environ or not folder.is_dir():
        return
    total = 0
    for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True):
        total += path.stat().st_size
        if total > _MOST_BYTES:
            path.unlink()


def _maps() -> int:
    """Pieces of memory that this process has mapped, where the system tells."""
    known = Path("/proc/self/maps")
    return known.read_bytes().count(b"\n") if known.exists() else 0


@pytest.fixture(autouse=True)
def forget_programs():
    """Lets go of compiled programs once there are thousands: each maps some pieces of memory, of which Linux allows a
    process 65530 by default, and LLVM does not survive the last of them."""
    yield
    if next(_finished) % _TESTS_A_COUNT == 0 and _maps() > _MOST_MAPS:
        jax.clear_caches()
        gc.collect()


def _shared_run(name):
    """Return a fixture of the folder with one of the runs that the command-line tests share."""

    @pytest.fixture(scope="session", name=f"{name}_run")
    def shared(tmp_path_factory):
        # Imported late: the type checker of the tests instruments only what is imported after it.
        from support import fitted_runs

        return fitted_runs.built_once(tmp_path_factory, name, getattr(fitted_runs, f"fit_{name}"))

    return shared


classical_run, counts_run, deep_run, recurrent_run = map(_shared_run, ("classical", "counts", "deep", "recurrent"))
