"""What the cluster has promised: committed batches of every log, and acknowledged ones.

The first replica whose high watermark passes a batch makes it part of the history. From then on
every other replica, every reader and every acknowledgement must agree with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.log.log import Log
from ottla.records.batch import Batch, scan
from ottla.records.record import records_of
from ottla.sim.disk.file import SimFile
from ottla.sim.model.batch import uid_of
from ottla.sim.network.exchange import Violation

_READ_BYTES = 1 << 20
PartitionKey = tuple[str, int]
Added = Callable[[PartitionKey, Batch, bytes], None]
"""Called with every batch that becomes part of a history, in the order of the log."""


class Committed(NamedTuple):
    """A committed batch."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    crc: int
    uid: int
    """The number of the client's batch; -1 for others."""


class LogHistory:
    """The committed batches of one log, from its beginning."""

    def __init__(
        self,
        name: str,
        *,
        has_uids: bool,
        on_added: Callable[[Batch, bytes], None] = lambda batch, data: None,
    ) -> None:
        self.name = name
        self._has_uids = has_uids
        self._on_added = on_added
        self.batches: dict[int, Committed] = {}
        self.end = 0
        self.offsets: dict[int, int] = {}
        """Where each batch of a client is."""

    def take(self, who: str, log: Log, start: int, end: int) -> None:
        """Compare a replica's committed batches in [start, end) with the history, or add them."""
        for batch, data in batches_of(log, start, end):
            self.compare(who, batch, data)

    def compare(self, who: str, batch: Batch, data: bytes) -> None:
        """Compare a batch that a replica calls committed with the history, or add it."""
        base_offset = batch.base_offset
        found = Committed(
            base_offset,
            batch.next_offset,
            batch.partition_leader_epoch,
            batch.crc,
            self._uid(batch, data),
        )
        known = self.batches.get(base_offset)
        if known is None and base_offset == self.end:
            self._add(who, found)
            self._on_added(batch, data)
        elif known != found:
            raise Violation(f"{who} has {found} in {self.name}; committed was {known}")

    def _add(self, who: str, found: Committed) -> None:
        if found.uid >= 0 and self.offsets.setdefault(found.uid, found.base_offset) != (
            found.base_offset
        ):
            first = self.offsets[found.uid]
            raise Violation(f"{who} has {found} in {self.name}, which was committed at {first}")
        self.batches[found.base_offset] = found
        self.end = found.next_offset

    def _uid(self, batch: Batch, data: bytes) -> int:
        if not self._has_uids or batch.is_control:
            return -1
        return uid_of(next(iter(records_of(data))).value)


def batches_of(log: Log, start: int, end: int) -> list[tuple[Batch, bytes]]:
    """Return the batches of a log from `start` on that end at or before `end`.

    Those that are in the remote tier only are left out.
    """
    found: list[tuple[Batch, bytes]] = []
    offset = max(start, log.local_log_start_offset)
    while offset < end:
        piece = log.read(offset, _READ_BYTES, end, at_least_one=True)
        if piece is None:
            break
        assert isinstance(piece.file, SimFile)
        data = piece.file.peek(piece.length, piece.position)
        for batch in scan(data, 0, len(data)):
            offset = batch.next_offset
            found.append((batch, data[batch.position : batch.end]))
    return found


class History:
    """The history of all topics."""

    def __init__(
        self, kind_of: Callable[[str], type[LogHistory]] = lambda topic: LogHistory
    ) -> None:
        """Begin without topics. `kind_of` says which kind of history a topic has."""
        self._kind_of = kind_of
        self.logs: dict[PartitionKey, LogHistory] = {}
        self.acked: dict[PartitionKey, dict[int, int]] = {}
        self.on_added: Added = lambda key, batch, data: None

    def log(self, key: PartitionKey) -> LogHistory:
        if key not in self.logs:
            # Topics of the cluster itself have records that no client made.
            has_uids = not key[0].startswith("__")
            self.logs[key] = self._kind_of(key[0])(
                f"{key[0]}-{key[1]}",
                has_uids=has_uids,
                on_added=lambda batch, data: self.on_added(key, batch, data),
            )
        return self.logs[key]

    def acknowledged(
        self, key: PartitionKey, uid: int, base_offset: int, *, is_seen: bool = True
    ) -> None:
        """Take note that a client was told that a batch is on all in-sync replicas.

        A leader whose disk failed or whose replica moved away right after that is not `seen` to
        have it committed.
        """
        log = self.log(key)
        batch = log.batches.get(base_offset)
        if batch is None and not is_seen and base_offset >= log.end:
            self.acked.setdefault(key, {})[uid] = base_offset
            return
        if batch is None:
            raise Violation(
                f"batch {uid} was acknowledged at {base_offset} of {log.name},"
                f" where {log.end} is the end of what is committed"
            )
        if batch.uid != uid:
            raise Violation(f"batch {uid} was acknowledged at {base_offset}, where {batch} is")
        self.acked.setdefault(key, {})[uid] = base_offset
