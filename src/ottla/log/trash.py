"""Files and directories that are to go, after a while and off the loop.

Removing a large file takes tens of milliseconds, and fetches may still send from it, so a
deleted segment is first renamed to `.deleted` (a partition's directory to `-delete`) and
removed here when its delay (file.delete.delay.ms) is over. What is left at a crash is found
by its name at the next start.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from ottla.ports import Background, Files

AT_A_TIME = 1000


class Trash:
    """Paths by the time they are due."""

    __slots__ = ("_background", "_due", "_files", "_is_busy", "on_error")

    def __init__(self, files: Files, background: Background) -> None:
        self._files = files
        self._background = background
        self._due: list[tuple[int, str, bool]] = []
        self._is_busy = False
        self.on_error: Callable[[str, OSError], None] = lambda path, error: None
        """Hears of removals that failed; the file is found again at the next start."""

    def __len__(self) -> int:
        return len(self._due)

    def add_file(self, path: str, due_ms: int) -> None:
        """Remove a file when the time has come."""
        heappush(self._due, (due_ms, path, False))

    def add_directory(self, path: str, due_ms: int) -> None:
        """Remove a directory with all in it when the time has come."""
        heappush(self._due, (due_ms, path, True))

    def empty(self, now_ms: int) -> int:
        """Start removing what is due, so many at a time; how many paths that are."""
        due = self._due
        paths: list[tuple[str, bool]] = []
        while due and due[0][0] <= now_ms and len(paths) < AT_A_TIME and not self._is_busy:
            _, path, is_directory = heappop(due)
            paths.append((path, is_directory))
        if paths:
            self._is_busy = True
            self._background.submit(lambda: self._remove(paths), self._removed)
        return len(paths)

    def next_due_ms(self) -> int | None:
        """When something is due next."""
        return self._due[0][0] if self._due else None

    def _remove(self, paths: list[tuple[str, bool]]) -> list[tuple[str, OSError]]:
        """Off the loop; what failed."""
        failed = []
        for path, is_directory in paths:
            remove = self._files.remove_tree if is_directory else self._files.unlink
            try:
                remove(path)
            except OSError as error:
                failed.append((path, error))
        return failed

    def _removed(self, failed: list[tuple[str, OSError]] | OSError) -> None:
        self._is_busy = False
        assert not isinstance(failed, OSError)
        for path, error in failed:
            self.on_error(path, error)
