"""What goes wrong on a disk, and when: decided before each operation, by seeded chance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from errno import EIO, ENOSPC
from random import Random as Generator
from typing import Final

UNLIMITED: Final = 1 << 40


class Crash(BaseException):
    """The process is gone from here on. Not an Exception: no handler of the broker may catch it."""


class Volume:
    """One log directory's disk: how much room it has and how often it fails."""

    __slots__ = ("eio_probability", "free_bytes", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.free_bytes = UNLIMITED
        self.eio_probability = 0.0

    @property
    def is_broken(self) -> bool:
        return self.eio_probability > 0


class DiskFaults:
    """The faults that are armed at present."""

    def __init__(self, chance: Generator, paths: Sequence[str]) -> None:
        self._chance = chance
        self.volumes = [Volume(path) for path in paths]
        self.operations_until_crash = -1
        """How many more operations that change something succeed; -1 is no limit."""
        self._is_looked_at = False

    @contextmanager
    def looked_at(self) -> Iterator[None]:
        """Let nothing fail while a checker reads what is on the disk."""
        self._is_looked_at = True
        try:
            yield
        finally:
            self._is_looked_at = False

    def volume_of(self, path: str) -> Volume | None:
        """Return the volume a path lies on."""
        for volume in self.volumes:
            if path == volume.path or path.startswith(volume.path + "/"):
                return volume
        return None

    def fail_some(self, path: str) -> None:
        """Raise EIO if the path's volume fails this time."""
        volume = self.volume_of(path)
        if volume is None or not volume.is_broken or self._is_looked_at:
            return
        if self._chance.random() < volume.eio_probability:
            raise OSError(EIO, "simulated I/O error", path)

    def crashes_now(self) -> bool:
        """Return whether the process ends with the operation that is about to begin."""
        if self.operations_until_crash < 0:
            return False
        self.operations_until_crash -= 1
        return self.operations_until_crash < 0

    def take_room(self, path: str, wanted: int) -> int:
        """Take up to `wanted` bytes of the volume's room; how many there were."""
        volume = self.volume_of(path)
        if volume is None:
            return wanted
        taken = max(min(wanted, volume.free_bytes), 0)
        volume.free_bytes -= taken
        return taken

    def give_room(self, path: str, size: int) -> None:
        """Give back the room of a file that became smaller or was removed."""
        volume = self.volume_of(path)
        if volume is not None:
            volume.free_bytes += size

    def heal(self) -> None:
        """Heal everything: nothing fails any more, and there is room."""
        self.operations_until_crash = -1
        for volume in self.volumes:
            volume.free_bytes = UNLIMITED
            volume.eio_probability = 0.0


def no_room(path: str) -> OSError:
    """Return the error of a full disk."""
    return OSError(ENOSPC, "simulated full disk", path)
