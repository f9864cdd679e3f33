"""Compiled programs, cached from one command to the next."""

import os
from pathlib import Path

_VARIABLE = "JAX_COMPILATION_CACHE_DIR"
_LARGEST = 500 * 2**20
"""Bytes of the cache; beyond them the oldest programs go."""


def use_compile_cache() -> None:
    """Lets JAX cache what it compiles in the user's cache folder, so that the same command starts sooner next time.

    The environment variable JAX_COMPILATION_CACHE_DIR names another folder; if it is empty, nothing is cached. This
    must be called before JAX is imported.
    """
    # Dozens of small programs prepare a run; by default JAX caches only those that took a second to compile.
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    if _VARIABLE in os.environ:
        return
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mcfo" / "programs"
        folder.mkdir(parents=True, exist_ok=True)
        remove_oldest(folder, _LARGEST)
    except (OSError, RuntimeError):
        return  # without a home, or with one that cannot be written to, every command compiles
    os.environ[_VARIABLE] = str(folder)


def remove_oldest(folder: Path, most: int) -> None:
    """Removes the oldest files until at most this many bytes are left."""
    files = sorted((path for path in folder.iterdir() if path.is_file()), key=lambda path: path.stat().st_mtime)
    total = sum(path.stat().st_size for path in files)
    for path in files:
        if total <= most:
            return
        total -= path.stat().st_size
        path.unlink(missing_ok=True)
