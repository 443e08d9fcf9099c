"""The controller's log: decisions become metadata records, written before they count.

A quorum of one, this node. Records of one decision go into one batch, so that a crash keeps
all of them or none. The batch is forced to disk before the image changes and listeners hear
of it; after a failure the log is cut back to where it was, and if even that fails nothing
is written any more: the log on disk and the image may then differ.

Transitions: replay() once, then write() as often as needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from ottla.config.definition import MAX_INT, MAX_LONG
from ottla.config.topic import LogConfig
from ottla.log.log import Log
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from ottla.metadata.serde import MetadataError, decode_record, encode_record
from ottla.model.errors import ApiError, ErrorCode
from ottla.ports import Clock
from ottla.records.batch import scan
from ottla.records.record import build_batch, records_of
from ottla.wire.message import Message

Listener: TypeAlias = Callable[[Sequence[Message]], None]

METADATA_LOG_CONFIG = LogConfig(
    flush_messages=1,
    max_message_bytes=MAX_INT,
    message_timestamp_after_max_ms=MAX_LONG,
    message_timestamp_before_max_ms=MAX_LONG,
    retention_bytes=-1,
    retention_ms=-1,
)
"""Every write is forced to disk. Everything is kept: there are no snapshots yet that could take
the place of old records."""

_READ_BYTES = 1024 * 1024


class QuorumController:
    """Writes metadata records, and keeps the image that they make."""

    def __init__(self, log: Log, image: MetadataImage, clock: Clock) -> None:
        self.log = log
        self.image = image
        self.listeners: list[Listener] = []
        self.leader_epoch = max(log.leader_epochs.latest_epoch, 0) + 1
        self._clock = clock
        self._broken = False

    def replay(self) -> None:
        """Apply all records of the log to the image, a part of it in memory at a time.

        MetadataError when the log does not make sense, OSError when it cannot be read.
        """
        for record in whole_transactions(self._read()):
            self.image.apply(record)
        self.log.high_watermark = self.log.log_end_offset

    def write(self, records: Sequence[Message]) -> None:
        """Make the records part of the log and of the image, then tell the listeners.

        KAFKA_STORAGE_ERROR when they cannot be stored: then nothing has changed.
        """
        if not records:
            return
        self._append(records)
        for record in records:
            self.image.apply(record)
        for listener in self.listeners:
            listener(records)

    def _append(self, records: Sequence[Message]) -> None:
        if self._broken:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                "The metadata log failed earlier and could not be repaired: restart the broker",
            )
        log, now_ms = self.log, self._clock.wall_ms()
        end = log.log_end_offset
        batch = build_batch([(None, encode_record(record), now_ms, ()) for record in records])
        try:
            log.append_as_leader(batch, memoryview(batch), 0, len(batch), self.leader_epoch, now_ms)
            log.write_queued()
        except OSError as error:
            self._take_back(end)
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"The metadata log cannot be written: {error}"
            ) from error
        log.high_watermark = log.log_end_offset

    def _take_back(self, end: int) -> None:
        try:
            self.log.truncate_to(end)
        except OSError:
            # A cut that is made but not forced to disk is covered by the next write that is.
            self._broken = self.log.log_end_offset != end

    def _read(self) -> Iterator[Message]:
        log = self.log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            piece = log.read(offset, _READ_BYTES, log.log_end_offset, at_least_one=True)
            if piece is None:
                raise MetadataError(f"the metadata log ends at {offset}, not {log.log_end_offset}")
            data = piece.file.pread(piece.length, piece.position)
            for batch in scan(data, 0, len(data)):
                offset = batch.next_offset
                if not batch.is_control:
                    for record in records_of(data[batch.position : batch.position + batch.size]):
                        yield decode_record(record.value or b"")


def whole_transactions(records: Iterable[Message]) -> Iterator[Message]:
    """The records that count: those of a transaction only once it has ended (KIP-868).

    Ottla writes none; the log of a Kafka controller may hold them.
    """
    begun: list[Message] | None = None
    for record in records:
        if isinstance(record, BeginTransactionRecord):
            begun = []
        elif isinstance(record, AbortTransactionRecord):
            begun = None
        elif isinstance(record, EndTransactionRecord):
            yield from begun or ()
            begun = None
        elif begun is not None:
            begun.append(record)
        else:
            yield record
