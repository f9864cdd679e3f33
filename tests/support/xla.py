"""Flags for the compiler of the tests' programs."""

import os
import subprocess
import sys


def with_flags(flags: str, *added: str) -> str:
    """Add those flags of XLA that this jaxlib knows: at one that it does not know, XLA ends the process."""
    wanted = [flag for flag in added if flag.split("=")[0] not in flags]
    if not wanted or "PYTEST_XDIST_WORKER" in os.environ:
        return flags
    if _starts(all_wanted := " ".join([flags, *wanted])):
        return all_wanted
    return " ".join([flags, *(flag for flag in wanted if _starts(f"{flags} {flag}"))])


def _starts(flags: str) -> bool:
    start = [sys.executable, "-c", "import jax; jax.devices()"]
    return subprocess.run(start, env={**os.environ, "XLA_FLAGS": flags}, capture_output=True).returncode == 0
