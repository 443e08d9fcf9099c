"""Reads the records of the metadata log at start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ottla.controller.metadata_log import MetadataLog
from ottla.metadata.control_records import QuorumRecords, decode_control
from ottla.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from ottla.metadata.serde import decode_record
from ottla.records.control import ControlType, control_type
from ottla.records.record import records_of
from ottla.wire.message import Message


class MetadataReader:
    """One reading of the log, from an offset to its end."""

    def __init__(self, log: MetadataLog, offset: int, quorum_records: QuorumRecords) -> None:
        self._log = log
        self._offset = offset
        self.quorum_records = quorum_records
        """The latest records about voters, with those read so far."""
        self.size = 0
        """Bytes read so far."""

    def records(self) -> Iterator[Message]:
        """Return the metadata records; control records are taken note of here."""
        for batch, data in self._log.batches(self._offset):
            self.size += batch.size
            for record in records_of(data):
                if not batch.is_control:
                    yield decode_record(record.value or b"")
                elif control_type(record.key) in (
                    ControlType.KRAFT_VERSION,
                    ControlType.KRAFT_VOTERS,
                ):
                    self.quorum_records = self.quorum_records.after(decode_control(record))

    def control(self) -> Iterator[tuple[int, Message]]:
        """Return the control records with their offsets."""
        for batch, data in self._log.batches(self._offset):
            if batch.is_control:
                for index, record in enumerate(records_of(data)):
                    message = decode_control(record)
                    if message is not None:
                        yield batch.base_offset + index, message


def whole_transactions(records: Iterable[Message]) -> Iterator[Message]:
    """Return the records that count: those of a transaction only once it has ended (KIP-868)."""
    transactions = MetadataTransactions()
    for record in records:
        yield from transactions.take(record)


class MetadataTransactions:
    """Holds records of a transaction back until it has ended.

    Ottla writes no transactions; the log of a Kafka controller may hold them.
    """

    def __init__(self) -> None:
        self._begun: list[Message] | None = None

    def take(self, record: Message) -> Sequence[Message]:
        """Return the records that count now."""
        if isinstance(record, BeginTransactionRecord):
            self._begun = []
        elif isinstance(record, AbortTransactionRecord):
            self._begun = None
        elif isinstance(record, EndTransactionRecord):
            ended, self._begun = self._begun, None
            return ended or ()
        elif self._begun is not None:
            self._begun.append(record)
        else:
            return (record,)
        return ()
