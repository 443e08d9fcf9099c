"""A small file system in memory, which a test can fill or break. For root only."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

_FILLER: Final = "filler"
_MIB: Final = 1024 * 1024


class SmallDisk:
    """A directory with a file system of its own. `close` removes it."""

    def __init__(self, directory: Path, mebibytes: int) -> None:
        self.directory = directory
        directory.mkdir(parents=True)
        _run("mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(directory))

    def fill(self) -> None:
        """Leave no room for a single byte."""
        with (self.directory / _FILLER).open("ab", buffering=0) as filler:
            for size in (_MIB, 4096, 1):
                try:
                    while filler.write(b"\0" * size):
                        pass
                except OSError:
                    continue

    def make_room(self) -> None:
        """Undo `fill`."""
        (self.directory / _FILLER).unlink(missing_ok=True)

    def fail(self) -> None:
        """Refuse all writes from now on, as a file system does after an error of its disk."""
        self._remount("ro")

    def repair(self) -> None:
        """Take writes again."""
        self._remount("rw")

    def close(self) -> None:
        """Remove the file system with everything in it."""
        _run("umount", "-l", str(self.directory))

    def _remount(self, mode: str) -> None:
        _run("mount", "-o", f"remount,{mode}", str(self.directory))


def are_allowed(directory: Path) -> bool:
    """Return True if this machine lets the test mount file systems."""
    if os.geteuid() != 0:
        return False
    try:
        SmallDisk(directory / "probe", 1).close()
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=20)
