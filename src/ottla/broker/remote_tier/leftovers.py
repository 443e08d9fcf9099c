"""Finds objects that belong to no segment, so that the leader of their partition deletes them.

They are left if a broker dies while it gives up an upload that the next leader has deleted already:
what it stored after that is named by no metadata.

The leader lists the objects of a partition before its first copy, and before another one some time
after it has deleted the upload of another broker. The record that the copy is finished comes after
all records about uploads that had begun when the objects were listed. So once the leader has read
that record, it knows the segments of all objects that somebody still needs.

Segments with a manifest are not touched. If `__remote_log_metadata` has lost records, the segments
that they were about must stay readable without a broker. `ottla tier check` names them.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from math import inf
from typing import Final

from ottla.ports import ObjectStore, ObjectStoreError, StoredObject
from ottla.tiered.layout import MANIFEST, parse_object

AGAIN_AFTER_MS: Final = 60_000
"""How long after a deletion, or a listing that failed, the objects are listed again."""
_PAGE: Final = 4000


class Leftovers:
    """The objects of one partition that may belong to nobody."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._leader_epoch = -1
        self._again_ms = inf
        self._found: dict[str, list[str]] = {}
        """The keys of objects without a manifest, by what they begin with, as they were listed."""
        self._latest_whole = ""
        """The beginning of the keys of the latest segment with a manifest in the listing."""

    def is_due(self, leader_epoch: int, now_ms: float) -> bool:
        """Return True if the objects should be listed before the next copy."""
        return leader_epoch != self._leader_epoch or now_ms >= self._again_ms

    def look_again(self, now_ms: float) -> None:
        """List the objects again before a later copy."""
        self._again_ms = now_ms + AGAIN_AFTER_MS

    def look(self, leader_epoch: int, now_ms: float, done: Callable[[], None]) -> None:
        """List the objects, and call `done`. If that fails, try it again later."""
        self._leader_epoch, self._again_ms = leader_epoch, inf
        self._found.clear()
        self._latest_whole = ""

        def listed(result: list[StoredObject] | ObjectStoreError) -> None:
            if isinstance(result, ObjectStoreError):
                self._found.clear()
                self.look_again(now_ms)
                done()
            elif result:
                self._add([each.key for each in result])
                self._store.list(self._prefix, result[-1].key, _PAGE, listed)
            else:
                done()

        self._store.list(self._prefix, "", _PAGE, listed)

    def _add(self, keys: list[str]) -> None:
        """Note objects. Those of one segment follow each other, the manifest between others."""
        found = self._found
        for key in keys:
            segment, _, kind = key.rpartition(".")
            if kind == MANIFEST:
                found.pop(segment, None)
                self._latest_whole = segment
            elif segment != self._latest_whole:
                found.setdefault(segment, []).append(key)

    def take(self, known: Container[bytes]) -> list[str]:
        """Return the keys of objects that belong to no known segment, and forget what was listed.

        A copy that began after the listing must have been read back from the metadata.
        """
        found, self._found = self._found, {}
        orphans: list[str] = []
        for keys in found.values():
            parsed = parse_object(keys[0].removeprefix(self._prefix))
            if parsed is not None and parsed.segment_id not in known:
                orphans += keys
        return orphans
