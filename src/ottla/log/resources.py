"""What all logs of a broker share: the ports, the pool of open files, the trash."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.log.pool import FilePool
from ottla.log.trash import Trash
from ottla.ports import Background, Clock, Files, Random

if TYPE_CHECKING:
    from ottla.log.log import Log


class Resources:
    """Handed to every log; `on_error` hears of storage errors of work done in the background."""

    __slots__ = ("background", "clock", "files", "notes", "on_error", "pool", "random", "trash")

    def __init__(
        self,
        files: Files,
        pool: FilePool,
        background: Background,
        clock: Clock,
        random: Random,
    ) -> None:
        self.files = files
        self.pool = pool
        self.background = background
        self.clock = clock
        self.random = random
        self.trash = Trash(files, background)
        self.notes: list[str] = []
        """What happened that a person should read; whoever logs it clears it."""
        self.on_error: Callable[[Log, OSError], None] = _raise


def _raise(log: Log, error: OSError) -> None:
    raise error
