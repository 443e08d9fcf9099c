"""Python's garbage collection in a broker process: what it looks at, and when it has to wait.

A collection holds the loop while it looks at objects, so it should look at few of them:

- What a broker has when it begins to serve is set aside (`gc.freeze`): no collection looks at it.
- New objects are looked at some thousands at a time. If a collection of all objects that are not
  set aside takes long, the objects that it leaves are set aside too. So a broker may have millions
  of objects that stay, such as committed offsets.
- A request of a million items is millions of objects, so a collection waits until the request is
  handled and its objects are freed. A collection would find no garbage among them, because their
  reference counts free them. Objects that stay are set aside without a look at them, if they are
  many: garbage among a few would better be found by the next collection. A
  collection also waits while a coordinator loads its data.

Objects in cycles that were set aside and are not used any more are found when there is as much
again as there was before: then everything is looked at once. That takes long, but it is rare, and
such objects never take more memory than those that are used. They are still allocated, so what was
set aside and is freed by now does not count: a broker whose state does not grow never looks at
everything. While clients send requests, it waits until there is four times as much, so that mostly
a broker without clients does it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.broker.metrics.loop_stalls import COLLECTION, NOTED_MS

if TYPE_CHECKING:
    from ottla.broker.node import Node

COLLECT_AFTER: Final = 5_000
"""How many more objects than before there must be for a collection. The hot path makes none.

While a coordinator loads, or many offsets are committed for the first time, nearly all objects
stay, and each collection looks at them for nothing.
"""
YOUNGER_COLLECTIONS: Final = 1, 1
"""How many collections of the youngest objects come before one of older ones, and so on.

So a collection of all looks at about 20,000 new objects.
"""

MOST_OBJECTS: Final = 10_000_000
"""How many objects may come without a collection, if large requests never cease."""

LONG_MS: Final = 2.0
"""If a collection took longer, the objects that it leaves are set aside."""
CHECK_MS: Final = 60_000
MUCH_MS: Final = 50.0
"""Less than this is not worth a look at everything."""
BUSY_PER_SECOND: Final = 10
"""If clients sent more requests since the last check, a look at everything would delay them."""
BUSY_FACTOR: Final = 4
"""How much more may be set aside then."""
OBJECT_MS: Final = 0.0001
"""About what a look at an object takes."""
_ALL: Final = 2
"""The generation whose collection looks at all objects that are not set aside."""


class GarbageCollection:
    """The collection of a process with one broker."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._pauses = 0
        self._began_ms = 0.0
        self._everything_ms = 0.0
        """How long the last look at everything took."""
        self._aside_ms = 0.0
        """How much longer it would take now, because of what was set aside since."""
        self._blocks = 0
        """How many blocks of memory were in use after it."""
        self._requests = 0
        """How many requests there were at the last check."""
        self._thresholds = gc.get_threshold()
        gc.collect()
        gc.freeze()
        self._blocks = sys.getallocatedblocks()
        gc.set_threshold(COLLECT_AFTER, *YOUNGER_COLLECTIONS)
        gc.callbacks.append(self._note)
        node.pause_collection = self.pause
        self._check_later()

    def close(self) -> None:
        """Leave the collection to Python again."""
        gc.callbacks.remove(self._note)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()
        gc.enable()

    def pause(self, is_paused: bool) -> None:
        """Let no collection begin, until this is called with False as often as with True."""
        self._pauses += 1 if is_paused else -1
        if not self._pauses:
            # Those that took the place of others are not counted, but would be looked at too.
            count = gc.get_count()[0]
            if count > COLLECT_AFTER:
                self._set_aside(count * OBJECT_MS)
            gc.enable()
            return
        gc.disable()
        if is_paused and gc.get_count()[0] > MOST_OBJECTS:
            gc.collect()

    def _set_aside(self, look_ms: float) -> None:
        """Let later collections look at new objects only, because the others take too long."""
        gc.freeze()
        self._aside_ms += look_ms

    def _note(self, phase: str, info: Mapping[str, int]) -> None:
        """Note how long a collection takes; set aside what a long one leaves."""
        now_ms = self._node.clock.monotonic_ms()
        if phase == "start":
            self._began_ms = now_ms
            return
        took_ms = now_ms - self._began_ms
        if took_ms > NOTED_MS:
            self._node.loop_stalls.note(COLLECTION, took_ms, self._node.monotonic_ms)
        if took_ms > LONG_MS and info["generation"] == _ALL:
            self._set_aside(took_ms)

    def _check(self) -> None:
        """Look at everything if there is as much again as there was before."""
        wanted_ms = max(self._everything_ms, MUCH_MS) * (BUSY_FACTOR if self._is_busy() else 1)
        grown_ms = (sys.getallocatedblocks() - self._blocks) * OBJECT_MS
        if min(self._aside_ms, grown_ms) >= wanted_ms and not self._pauses:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self._everything_ms = self._node.clock.monotonic_ms() - self._began_ms
            self._aside_ms = 0.0
            self._blocks = sys.getallocatedblocks()
        self._check_later()

    def _is_busy(self) -> bool:
        """Return True if clients have sent more than a few requests since the last check."""
        before = self._requests
        self._requests = self._node.pipeline.request_count()
        return (self._requests - before) * 1000 > BUSY_PER_SECOND * CHECK_MS

    def _check_later(self) -> None:
        self._node.timers.at(self._node.monotonic_ms + CHECK_MS, self._check)
