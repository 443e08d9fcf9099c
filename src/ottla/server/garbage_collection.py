"""Python's garbage collection in a broker process: what it takes, and when it has to wait.

A collection looks at every object that has come since the last one, or at all of them, and holds
the loop meanwhile. A request of a million items is millions of objects, so a collection waits
until the request is handled and its objects are freed. They are no garbage that it could find:
the counts of references free them.

A broker may have millions of objects that stay: producers, committed offsets. If a collection of
all objects takes long, those that are left are frozen: for some minutes, others look at new
objects only.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.broker.loop_stalls import COLLECTION, NOTED_MS

if TYPE_CHECKING:
    from ottla.broker.node import Node

MOST_OBJECTS: Final = 10_000_000
"""How many objects may come without a collection, if large requests never cease."""

LONG_MS: Final = 20.0
FROZEN_MS: Final = 600_000
_ALL: Final = 2
"""The generation whose collection looks at all objects."""


class GarbageCollection:
    """The collection of a process with one broker."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._pauses = 0
        self._is_frozen = False
        self._began_ms = 0.0
        gc.callbacks.append(self._note)
        node.pause_collection = self.pause

    def close(self) -> None:
        """Leave the collection to Python again."""
        gc.callbacks.remove(self._note)
        gc.enable()

    def pause(self, is_paused: bool) -> None:
        """Let no collection begin, until this is called with False as often as with True."""
        self._pauses += 1 if is_paused else -1
        if not self._pauses:
            gc.enable()
            return
        gc.disable()
        if is_paused and gc.get_count()[0] > MOST_OBJECTS:
            gc.collect()

    def _note(self, phase: str, info: Mapping[str, int]) -> None:
        """Note how long a collection takes."""
        now_ms = self._node.clock.monotonic_ms()
        if phase == "start":
            self._began_ms = now_ms
            return
        took_ms = now_ms - self._began_ms
        if took_ms > NOTED_MS:
            self._node.loop_stalls.note(COLLECTION, took_ms, self._node.monotonic_ms)
        if took_ms > LONG_MS and info["generation"] == _ALL:
            gc.freeze()
            if not self._is_frozen:
                self._is_frozen = True
                self._node.timers.at(self._node.monotonic_ms + FROZEN_MS, self._thaw)

    def _thaw(self) -> None:
        """Let the next collection of all objects look at all of them again."""
        self._is_frozen = False
        gc.unfreeze()
