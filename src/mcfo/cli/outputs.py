"""The files that a command writes, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mcfo.cli.options import check_new_file, fail
from mcfo.errors import InputError

if TYPE_CHECKING:
    import numpy as np


class Outputs(NamedTuple):
    """The files that a command writes, as far as they were asked for: numbers, a figure, music."""

    out: Path | None
    plot: Path | None
    midi: tuple[Path, ...] = ()

    def check(self, what: str, endings: Iterable[str], *, music: bool = False) -> None:
        """Refuses to work for nothing, and names that cannot be written."""
        if not any(self):
            other = "a figure (--plot) or music (--midi)" if music else "a figure (--plot)"
            fail(f"Nothing would be saved. Give a file for {what} (--out){',' if music else ' or'} {other}.")
        check_new_file(self.out, "--out", endings)
        check_new_file(self.plot, "--plot", (".png", ".gif"))
        for path in self.midi:
            check_new_file(path, "--midi", (".mid", ".midi"))

    def ends_in(self, ending: str) -> bool:
        """Whether the numbers go into a file of this kind."""
        return self.out is not None and self.out.suffix.lower() == ending

    def check_film(self, image: tuple[int, int] | None) -> None:
        """Refuses a film of anything but images."""
        if self.plot is not None and self.plot.suffix.lower() == ".gif" and image is None:
            raise InputError(
                f"{self.plot}: these are no series of images, so that nothing moves. Draw a .png. Images are "
                "`observations` of shape (series, steps, height, width) in an NPZ file."
            )

    def check_music(self, values: "np.ndarray", source: str) -> None:
        """Refuses music of anything but piano-rolls, and where the package for it is missing."""
        if not self.midi:
            return
        from mcfo.data.piano_rolls import KEYS, is_roll, require_mido

        require_mido()
        if not is_roll(values):
            columns = f"{values.shape[-1]} columns" + (" of other numbers" if values.shape[-1] == KEYS else "")
            raise InputError(
                f"--midi is for piano-rolls, {KEYS} columns of zeros and ones, but {source} has {columns}. Leave it "
                "out, or learn from music that mcfo data music converted."
            )
