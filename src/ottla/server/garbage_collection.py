"""Python's garbage collection in a broker process: what it looks at, and when it has to wait.

A collection holds the loop while it looks at objects, so it should look at few of them:

- What a broker has when it begins to serve is set aside (`gc.freeze`): no collection looks at it.
- New objects are looked at some thousands at a time. If a collection of all objects that are not
  set aside takes long, the objects that it leaves are set aside too. So a broker may have millions
  of objects that stay, such as committed offsets.
- A request of a million items is millions of objects, so a collection waits until the request is
  handled and its objects are freed. A collection would find no garbage among them, because their
  reference counts free them. Objects that stay are set aside without a look at them. A
  collection also waits while a coordinator loads its data.

Objects that were set aside and are not used any more are freed by their reference counts, unless
they are in cycles. The broker leaves no cycles behind: what ends (a partition, a connection, a
group) lets go of what refers to it. In case that some code does not, a check from time to time asks
whether there is twice as much memory in use as before. If so, a copy of the process counts what
is in cycles and not used any more (`garbage_search`). Only if that is a large part of everything,
the broker looks at all objects and frees them. That takes long, so it waits for a minute without
many requests, unless there is four times as much as before.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.broker.metrics.loop_stalls import COLLECTION, NOTED_MS

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.server.garbage_search import GarbageSearch

COLLECT_AFTER: Final = 2_500
"""How many more objects than before there must be for a collection. The hot path makes none.

While a coordinator loads, or many offsets are committed for the first time, nearly all objects
stay, and each collection looks at them for nothing.
"""
YOUNGER_COLLECTIONS: Final = 1, 1
"""How many collections of the youngest objects come before one of older ones, and so on.

So a collection of all looks at about 10,000 new objects.
"""

LONG_MS: Final = 1.0
"""If a collection took longer, the objects that it leaves are set aside."""
CHECK_MS: Final = 60_000
MUCH_BLOCKS: Final = 500_000
"""Less than this is not worth a search. A block of memory is one object, or a part of one."""
PART: Final = 8
"""Garbage is worth a look at everything if its objects are more than one in eight blocks."""
SEARCH_MS: Final = 200
"""How often to ask whether a search is over."""
LONGEST_SEARCH_MS: Final = 300_000
BUSY_PER_SECOND: Final = 10
"""If clients sent more requests since the last check, a look at everything would delay them."""
BUSY_FACTOR: Final = 4
"""How much more must be in use for it then."""
_ALL: Final = 2
"""The generation whose collection looks at all objects that are not set aside."""


class GarbageCollection:
    """The collection of a process with one broker."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._pauses = 0
        self._began_ms = 0.0
        self._search: GarbageSearch | None = None
        self._search_began_ms = 0.0
        self._has_much = False
        """True if the last search has found much garbage."""
        self._requests = 0
        """How many requests there were at the last check."""
        self._thresholds = gc.get_threshold()
        gc.collect()
        gc.freeze()
        self._blocks = sys.getallocatedblocks()
        """How many blocks of memory were in use after the last search that found little."""
        gc.set_threshold(COLLECT_AFTER, *YOUNGER_COLLECTIONS)
        gc.callbacks.append(self._note)
        node.pause_collection = self.pause
        self._check_later()

    def close(self) -> None:
        """Leave the collection to Python again."""
        if self._search is not None:
            self._search.end()
        gc.callbacks.remove(self._note)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()
        gc.enable()

    def pause(self, is_paused: bool) -> None:
        """Let no collection begin, until this is called with False as often as with True."""
        self._pauses += 1 if is_paused else -1
        if self._pauses:
            gc.disable()
            return
        # They may be very many although Python counts few: it subtracts older ones that were freed.
        gc.freeze()
        gc.enable()

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
            gc.freeze()

    # -- garbage that was set aside ------------------------------------------------------

    def _check(self) -> None:
        """Search for garbage if there is twice as much in use as before; free it if it is much."""
        is_busy = self._is_busy()
        if not self._has_much and self._has_grown(1):
            self._begin_search()
        elif self._has_much and (not is_busy or self._has_grown(BUSY_FACTOR - 1)):
            self._look_at_everything()
        if self._search is None:
            self._check_later()

    def _has_grown(self, times: int) -> bool:
        """Return True if so many times as much as before was added to what is in use."""
        return sys.getallocatedblocks() - self._blocks >= times * max(self._blocks, MUCH_BLOCKS)

    def _begin_search(self) -> None:
        from ottla.server.garbage_search import GarbageSearch

        try:
            self._search = GarbageSearch(sys.getallocatedblocks() // PART)
        except OSError as error:  # there is no memory for it, or there are too many processes
            self._node.ports.report(f"cannot search for unused memory: {error.strerror}")
            return
        self._search_began_ms = self._node.monotonic_ms
        self._node.timers.at(self._node.monotonic_ms + SEARCH_MS, self._ask)

    def _ask(self) -> None:
        """Ask whether the search is over, and what it has found."""
        search = self._search
        assert search is not None
        result, now_ms = search.result(), self._node.monotonic_ms
        if result is None and now_ms - self._search_began_ms > LONGEST_SEARCH_MS:
            search.end()
            result = False
        if result is None:
            self._node.timers.at(now_ms + SEARCH_MS, self._ask)
            return
        self._search = None
        self._has_much = result
        if not result:
            self._blocks = sys.getallocatedblocks()
        self._check_later()

    def _look_at_everything(self) -> None:
        gc.unfreeze()
        found = gc.collect()
        gc.freeze()
        self._has_much = False
        self._blocks = sys.getallocatedblocks()
        took_ms = self._node.clock.monotonic_ms() - self._began_ms
        self._node.ports.report(
            f"{found} unused objects in cycles were found and freed, which took {took_ms:.0f} ms."
            " This is a bug that costs memory; please report it"
        )

    def _is_busy(self) -> bool:
        """Return True if clients have sent more than a few requests since the last check."""
        before = self._requests
        self._requests = self._node.pipeline.request_count()
        return (self._requests - before) * 1000 > BUSY_PER_SECOND * CHECK_MS

    def _check_later(self) -> None:
        self._node.timers.at(self._node.monotonic_ms + CHECK_MS, self._check)
