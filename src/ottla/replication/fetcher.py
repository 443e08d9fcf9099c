"""A set of partitions one consumer follows, and which of them need a look.

A fetcher serves one request (sessionless) or lives on in an incremental fetch session
(KIP-227). Partitions tell their watchers when they change, so a fetch of a session looks
only at what changed since, never at all its partitions.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.replication.partition import Partition

PartitionKey = tuple[bytes, int]


class FetchEntry:
    """One followed partition: where the consumer stands and what it was last told."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "fetcher",
        "index",
        "key",
        "last_fetched_epoch",
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
        self.max_bytes = 0
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1

    def move(
        self, current_leader_epoch: int, fetch_offset: int, last_fetched_epoch: int, max_bytes: int
    ) -> None:
        """Take over what the consumer says about this partition now."""
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
        """Watcher: this entry needs a look, and a parked request may be done."""
        fetcher = self.fetcher
        fetcher.dirty[self] = None
        if fetcher.on_change is not None:
            fetcher.on_change(self)


class Fetcher:
    """The followed partitions. `dirty` keeps their order: who was served goes to the end."""

    __slots__ = ("dirty", "entries", "is_follower", "on_change")

    def __init__(self, *, is_follower: bool = False) -> None:
        self.is_follower = is_follower
        """Whether it is a follower that fetches, and not a consumer."""
        self.entries: dict[PartitionKey, FetchEntry] = {}
        self.dirty: dict[FetchEntry, None] = {}
        self.on_change: Callable[[FetchEntry], None] | None = None

    def follow(self, key: bytes, index: int) -> FetchEntry:
        """The entry of a partition, new if it was not followed; it needs a look."""
        entry = self.entries.get((key, index))
        if entry is None:
            entry = self.entries[(key, index)] = FetchEntry(self, key, index)
        self.dirty[entry] = None
        return entry

    def forget(self, key: bytes, index: int) -> None:
        entry = self.entries.pop((key, index), None)
        if entry is not None:
            entry.unwatch()
            self.dirty.pop(entry, None)

    def served(self, entry: FetchEntry) -> None:
        """An entry that got data goes behind the others, so that all get their turn."""
        if entry in self.dirty:
            del self.dirty[entry]
            self.dirty[entry] = None

    def close(self) -> None:
        """Stop following everything."""
        for entry in self.entries.values():
            entry.unwatch()
        self.entries.clear()
        self.dirty.clear()
        self.on_change = None
