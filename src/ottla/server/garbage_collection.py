"""Python's garbage collection in a broker process: what it takes, and when it has to wait.

A collection looks at every object that has come since the last one, or at all of them, and holds
the loop meanwhile. A request of a million items is millions of objects, so a collection waits
until the request is handled and its objects are freed. They are no garbage that it could find:
the counts of references free them.
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


class GarbageCollection:
    """The collection of a process with one broker."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._pauses = 0
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
        elif now_ms - self._began_ms > NOTED_MS:
            self._node.loop_stalls.note(
                COLLECTION, now_ms - self._began_ms, self._node.monotonic_ms
            )
