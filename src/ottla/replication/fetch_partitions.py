"""The partitions that one Fetch request or session reads, and which of them have changed.

A fetcher serves one request (sessionless) or lives on in an incremental fetch session
(KIP-227). Partitions tell their watchers when they change, so a fetch of a session looks
only at what changed since, never at all its partitions.

Invariant of a session: each entry is in `dirty`, or watches its partition, or both. While no
request waits, an entry that is told of a change stops watching: it is in `dirty`, which is all
that the next request has to know. So a session that nobody uses costs a partition nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.model.steps import Steps
from ottla.replication.partition import Partition
from ottla.wire.discard import discard_in_steps

PartitionKey = tuple[bytes, int]

ENTRY_BYTES: Final = 400
"""About what an entry takes in memory, without the name of its topic."""


_UNWATCHED_A_STEP: Final = 1000


class FetchEntry:
    """One partition of a fetcher: the position of the consumer, and the last answer about it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "fetcher",
        "index",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "sent_high_watermark",
        "sent_log_start_offset",
    )

    def __init__(self, fetcher: Fetcher, key: bytes, index: int) -> None:
        self.fetcher = fetcher
        self.key = key
        self.index = index
        self.partition: Partition | None = None
        self.current_leader_epoch = -1
        self.fetch_offset = 0
        self.last_fetched_epoch = -1
        self.log_start_offset = -1
        self.max_bytes = 0
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1

    def move(
        self,
        current_leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int,
        max_bytes: int,
        log_start_offset: int = -1,
    ) -> None:
        """Set what the request says about this partition. A negative leader epoch means none.

        A follower that asks again from the same offset, or in another leader epoch, may not have
        used the last answer: so the high watermark is sent again.
        """
        if self.fetcher.is_follower and (
            fetch_offset <= self.fetch_offset or current_leader_epoch != self.current_leader_epoch
        ):
            self.sent_high_watermark = -1
        self.log_start_offset = log_start_offset
        self.current_leader_epoch = current_leader_epoch
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch
        self.max_bytes = max_bytes

    def watch(self, partition: Partition) -> None:
        """Follow this partition from now on."""
        if self.partition is not partition:
            self.unwatch()
            self.partition = partition
        partition.watchers[self] = self.fetcher.is_follower

    def unwatch(self) -> None:
        if self.partition is not None:
            self.partition.watchers.pop(self, None)

    def partition_changed(self) -> None:
        """Mark the partition as changed, and tell the request that waits, if there is one."""
        fetcher = self.fetcher
        fetcher.dirty[self] = None
        if fetcher.on_change is not None:
            fetcher.on_change(self)
        else:
            self.unwatch()


class Fetcher:
    """The partitions. `dirty` has those that changed, in the order in which they are served."""

    __slots__ = ("dirty", "entries", "held_bytes", "is_follower", "on_change")

    def __init__(self, *, is_follower: bool = False) -> None:
        self.is_follower = is_follower
        """Whether it is a follower that fetches, and not a consumer."""
        self.entries: dict[PartitionKey, FetchEntry] = {}
        self.held_bytes = 0
        """About what the entries take in memory."""
        self.dirty: dict[FetchEntry, None] = {}
        self.on_change: Callable[[FetchEntry], None] | None = None

    def follow(self, key: bytes, index: int) -> FetchEntry:
        """Return the entry of a partition, a new one if needed, and mark it as changed."""
        place = (key, index)
        entry = self.entries.get(place)
        if entry is None:
            entry = self.entries[place] = FetchEntry(self, key, index)
            self.held_bytes += ENTRY_BYTES + len(key)
        self.dirty[entry] = None
        return entry

    def forget(self, key: bytes, index: int) -> None:
        entry = self.entries.pop((key, index), None)
        if entry is not None:
            self.held_bytes -= ENTRY_BYTES + len(key)
            entry.unwatch()
            self.dirty.pop(entry, None)

    def served(self, entry: FetchEntry) -> None:
        """Move an entry that got data behind the others, so that all get their turn."""
        dirty = self.dirty
        if len(dirty) > 1 and entry in dirty:
            del dirty[entry]
            dirty[entry] = None

    def exhausted(self, entry: FetchEntry, *, watch: bool) -> None:
        """Look at an entry again only when its partition has changed."""
        if watch and entry.partition is not None:
            entry.watch(entry.partition)
        self.dirty.pop(entry, None)

    def close(self) -> Steps[None]:
        """Stop following everything. There may be very many partitions."""
        self.on_change = None
        yield from self.unwatch_in_steps()
        self.held_bytes = 0
        yield from discard_in_steps(self.dirty, self.entries)

    def let_go(self) -> None:
        """Forget the few partitions of an answered request, which would refer to it in cycles."""
        if self.on_change is not None:  # it has waited
            for entry in self.entries.values():
                entry.unwatch()
        self.dirty.clear()
        self.entries.clear()

    def unwatch_in_steps(self) -> Steps[None]:
        """Watch no partition any more."""
        for number, entry in enumerate(list(self.entries.values()), 1):
            entry.unwatch()
            if not number % _UNWATCHED_A_STEP:
                yield
