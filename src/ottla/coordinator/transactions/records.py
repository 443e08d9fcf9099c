"""Records of __transaction_state, in Kafka's layout.

Version 0 of the value has no tagged fields. It is written while the cluster's transaction.version
is 0, because brokers of that level cannot read more.
"""

from __future__ import annotations

from typing import Final

from ottla.coordinator.runtime.record import (
    CoordinatorRecord,
    RecordKey,
    RecordKinds,
    RecordValue,
    decode_record,
    encode_key,
    encode_value,
)
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from ottla.ports import Buffer
from ottla.wire.message import Field, Items, Message, as_list

FIRST_FLEXIBLE_LEVEL: Final = 1
"""The level of transaction.version from which on version 1 of the value is written."""


class TransactionLogKey(RecordKey):
    """A transactional id."""

    __slots__ = ("transactional_id",)
    API_KEY = 0
    FIELDS = (Field("transactional_id", "string", (0, 0)),)

    def __init__(self, *, transactional_id: str = "") -> None:
        self.transactional_id = transactional_id


class PartitionsOfTopic(Message):
    """The partitions of one topic in a transaction."""

    __slots__ = ("partition_ids", "topic")
    FIELDS = (
        Field("topic", "string", (0, 1)),
        Field("partition_ids", "array", (0, 1), of="int32"),
    )

    def __init__(self, *, topic: str = "", partition_ids: Items[int] = ()) -> None:
        self.topic = topic
        self.partition_ids = as_list(partition_ids)


class TransactionLogValue(RecordValue):
    """The state of a transactional id.

    `last_producer_epoch` is the epoch before the present one, which a producer may name that asks
    again for an epoch it was given (KIP-360). It is not in the record, as with Kafka: after a
    failover such a producer is fenced. `level` is that of transaction.version in which the value
    is written.
    """

    __slots__ = (
        "client_transaction_version",
        "last_producer_epoch",
        "level",
        "next_producer_id",
        "previous_producer_id",
        "producer_epoch",
        "producer_id",
        "transaction_last_update_timestamp_ms",
        "transaction_partitions",
        "transaction_start_timestamp_ms",
        "transaction_status",
        "transaction_timeout_ms",
    )
    API_KEY = 0
    MAX_VERSION = 1
    FIRST_FLEXIBLE_VERSION = 1
    WRITTEN_VERSION = 1
    FIELDS = (
        Field("producer_id", "int64", (0, 1)),
        Field("previous_producer_id", "int64", (1, 1), tag=0),
        Field("next_producer_id", "int64", (1, 1), tag=1),
        Field("producer_epoch", "int16", (0, 1)),
        Field("transaction_timeout_ms", "int32", (0, 1)),
        Field("transaction_status", "int8", (0, 1)),
        Field("transaction_partitions", "array", (0, 1), nullable=(0, 1), of=PartitionsOfTopic),
        Field("transaction_last_update_timestamp_ms", "int64", (0, 1)),
        Field("transaction_start_timestamp_ms", "int64", (0, 1)),
        Field("client_transaction_version", "int16", (1, 1), tag=2),
    )

    def __init__(
        self,
        *,
        producer_id: int = 0,
        previous_producer_id: int = NO_PRODUCER_ID,
        next_producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = 0,
        transaction_timeout_ms: int = 0,
        transaction_status: int = 0,
        transaction_partitions: Items[PartitionsOfTopic] | None = (),
        transaction_last_update_timestamp_ms: int = 0,
        transaction_start_timestamp_ms: int = NO_TIMESTAMP,
        client_transaction_version: int = 0,
        last_producer_epoch: int = NO_PRODUCER_EPOCH,
        level: int = FIRST_FLEXIBLE_LEVEL,
    ) -> None:
        self.producer_id = producer_id
        self.previous_producer_id = previous_producer_id
        self.next_producer_id = next_producer_id
        self.producer_epoch = producer_epoch
        self.transaction_timeout_ms = transaction_timeout_ms
        self.transaction_status = transaction_status
        self.transaction_partitions: list[PartitionsOfTopic] | None = (
            None if transaction_partitions is None else as_list(transaction_partitions)
        )
        self.transaction_last_update_timestamp_ms = transaction_last_update_timestamp_ms
        self.transaction_start_timestamp_ms = transaction_start_timestamp_ms
        self.client_transaction_version = client_transaction_version
        self.last_producer_epoch = last_producer_epoch
        self.level = level

    @property
    def written_version(self) -> int:
        return 1 if self.level >= FIRST_FLEXIBLE_LEVEL else 0


KEY_PREFIX: Final = b"\0\0"
"""The beginning of every key."""

KINDS: Final[RecordKinds] = {TransactionLogKey.API_KEY: (TransactionLogKey, TransactionLogValue)}


def encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a record as bytes."""
    key, value = record
    return encode_key(key), None if value is None else encode_value(value)


def decode(key: Buffer | None, value: Buffer | None) -> CoordinatorRecord | None:
    """Return the record that a log record holds, or None if its kind is unknown here.

    Raise RecordError if it cannot be decoded.
    """
    record = decode_record(KINDS, key, value)
    if record is not None and isinstance(record[1], TransactionLogValue):
        record[1].last_producer_epoch = NO_PRODUCER_EPOCH
        record[1].level = FIRST_FLEXIBLE_LEVEL if value and value[1] else 0
    return record
