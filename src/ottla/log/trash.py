"""Files and directories that are deleted after a delay, off the loop.

Deleting a large file takes tens of milliseconds, and fetches may still send from it. So a
deleted segment is first renamed to `.deleted` (a partition's directory to `-delete`) and
deleted here after file.delete.delay.ms. After a crash the next start finds such files by their
names.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from ottla.ports import Background, Files

AT_A_TIME = 1000


class Trash:
    """Paths sorted by the time they are to be deleted."""

    __slots__ = ("_background", "_due", "_files", "_is_busy", "on_error")

    def __init__(self, files: Files, background: Background) -> None:
        self._files = files
        self._background = background
        self._due: list[tuple[int, str, bool]] = []
        self._is_busy = False
        self.on_error: Callable[[str, OSError], None] = lambda path, error: None
        """Called when a deletion fails. The next start finds the file again."""

    def __len__(self) -> int:
        return len(self._due)

    def add_file(self, path: str, due_ms: int) -> None:
        """Delete a file at a time."""
        heappush(self._due, (due_ms, path, False))

    def add_directory(self, path: str, due_ms: int) -> None:
        """Delete a directory and its content at a time."""
        heappush(self._due, (due_ms, path, True))

    def empty(self, now_ms: int) -> int:
        """Start deleting what is due, at most AT_A_TIME paths; return how many."""
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
        """Return the time of the next deletion, or None."""
        return self._due[0][0] if self._due else None

    def _remove(self, paths: list[tuple[str, bool]]) -> list[tuple[str, OSError]]:
        """Delete the paths, off the loop; return those that failed."""
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
