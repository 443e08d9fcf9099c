"""What is raised where something must be read from the object store first."""

from __future__ import annotations

from collections.abc import Callable


class NotCached(Exception):
    """Something must be read from the object store first."""

    def __init__(self, waiting: list[Callable[[], None]] | None) -> None:
        super().__init__()
        self._waiting = waiting

    def then(self, call: Callable[[], None]) -> None:
        """Call a function when the read has ended. It is never called if too many reads wait."""
        if self._waiting is not None:
            self._waiting.append(call)
