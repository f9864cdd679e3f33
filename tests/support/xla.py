"""Flags for the compiler of the tests' programs."""

import os
import subprocess
import sys


def with_flag(flags: str, flag: str) -> str:
    """Add a flag of XLA if this jaxlib knows it: at one that it does not know, XLA ends the process."""
    if flag in flags or "PYTEST_XDIST_WORKER" in os.environ:
        return flags
    start = [sys.executable, "-c", "import jax; jax.devices()"]
    known = subprocess.run(start, env={**os.environ, "XLA_FLAGS": f"{flags} {flag}"}, capture_output=True)
    return flags if known.returncode else f"{flags} {flag}"
