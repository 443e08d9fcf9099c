"""Spark's checkpoint in an object store, without Java's libraries for it.

Spark itself works with a copy on this machine. The original follows it at two moments: before a
batch is written to the table, when Spark has planned it, and at the end of a run. So whatever the
table has, its plan is in the object store, and another machine repeats or continues it:

- killed before the plan is stored: nothing of the batch is in the table, and the next run plans it
  again;
- killed after that: the next run repeats the batch with the same offsets, and the table
  shows whether it has the batch.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from ottla_spark.loads.state.arrow_storage import ArrowStorage

_ORDER = ("metadata", "offsets", "commits")
"""The order of uploads. A batch is done only if it was planned."""


class CheckpointCopy:
    """The copy, in a temporary directory `path`, of the checkpoint `original`."""

    def __init__(self, storage: ArrowStorage, original: str) -> None:
        self.path = tempfile.mkdtemp(prefix="ottla-checkpoint-")
        self._storage = storage
        self._original = original
        self._stored: dict[str, bytes] = {}

    def fetch(self) -> None:
        """Copy the original to this machine."""
        base = self._storage.canonical(self._original)
        for file in self._storage.files(self._original):
            name = file.uri.removeprefix(base).lstrip("/")
            content = self._storage.read_bytes(file.uri)
            place = Path(self.path, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
            self._stored[name] = content

    def store(self) -> None:
        """Copy what has changed since the last time to the original."""
        here = self._files()
        for name in sorted(here, key=_order):
            content = here[name].read_bytes()
            if self._stored.get(name) != content:
                self._storage.write_bytes(f"{self._original}/{name}", content)
                self._stored[name] = content
        for name in [name for name in self._stored if name not in here]:
            self._storage.remove(f"{self._original}/{name}")
            del self._stored[name]

    def clear(self) -> None:
        """Remove all files of the copy. The original is gone already."""
        shutil.rmtree(self.path)
        os.mkdir(self.path)
        self._stored.clear()

    def close(self) -> None:
        """Remove the copy."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _files(self) -> dict[str, Path]:
        """Return the files of Spark by name, without temporary and checksum files."""
        found = {}
        for directory, _, names in os.walk(self.path):
            for name in names:
                if not name.startswith("."):
                    path = Path(directory, name)
                    found[str(path.relative_to(self.path))] = path
        return found


def _order(name: str) -> tuple[int, str]:
    first = name.partition("/")[0]
    return (_ORDER.index(first) if first in _ORDER else 0, name)
