"""Compiled programs, cached from one command to the next."""

import os
import stat
import sys
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
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        for one in (folder.parent, folder):
            if not _is_private(one):
                print(
                    f"mcfo: Others can write into {one}, whose programs would run here, so that nothing is cached. "
                    f"Make it yours alone (rm -r {one}), or name another folder with {_VARIABLE}.",
                    file=sys.stderr,
                )
                return
        remove_oldest(folder, _LARGEST)
    except (OSError, RuntimeError):
        return  # without a home, or with one that cannot be written to, every command compiles
    os.environ[_VARIABLE] = str(folder)


def _is_private(folder: Path) -> bool:
    """Whether the folder is the user's, and nobody else can write into it."""
    about = folder.stat()
    return about.st_uid == os.getuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def remove_oldest(folder: Path, most: int) -> None:
    """Removes the oldest files until at most this many bytes are left."""
    files = sorted((path for path in folder.iterdir() if path.is_file()), key=lambda path: path.stat().st_mtime)
    total = sum(path.stat().st_size for path in files)
    for path in files:
        if total <= most:
            return
        total -= path.stat().st_size
        path.unlink(missing_ok=True)
