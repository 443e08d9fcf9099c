"""How far a member has come in the partitions it owns: what is processed and not yet committed."""

from __future__ import annotations

from collections.abc import Iterable

from tests.harness.member.report import Key


class Progress:
    """Positions by partition; one is forgotten when its partition is given up."""

    def __init__(self) -> None:
        self._processed: dict[Key, int] = {}
        self._committed: dict[Key, int] = {}

    def processed(self, offsets: dict[Key, list[int]]) -> None:
        for key, found in offsets.items():
            self._processed[key] = found[-1] + 1

    def to_commit(self, partitions: Iterable[Key] | None = None) -> dict[Key, int]:
        """Return what a commit should say now, of these partitions or of all."""
        wanted = self._processed.keys() if partitions is None else set(partitions)
        return {
            key: offset
            for key, offset in self._processed.items()
            if key in wanted and self._committed.get(key) != offset
        }

    def committed(self, offsets: dict[Key, int]) -> None:
        self._committed |= offsets

    def forget(self, partitions: Iterable[Key]) -> None:
        for key in partitions:
            self._processed.pop(key, None)
            self._committed.pop(key, None)
