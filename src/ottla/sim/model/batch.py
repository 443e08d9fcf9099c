"""Batches as producers make them, each one recognizable by its records."""

from __future__ import annotations

from enum import Enum
from random import Random as Generator
from typing import NamedTuple

from ottla.model.errors import ErrorCode
from ottla.records.batch import CRC_OFFSET, HEADER_SIZE, MAGIC_OFFSET, parse_header, seal
from ottla.records.compression import ZSTD
from ottla.records.record import build_batch


class Fate(Enum):
    """What is known about a batch.

    OPEN      nothing
    ACKED     it is there
    REFUSED   it is not there
    DELETED   it was there and was removed: a producer's sequence may still tell of it
    LOST      a power failure took it
    """

    OPEN = "open"
    ACKED = "acked"
    REFUSED = "refused"
    DELETED = "deleted"
    LOST = "lost"


class Producer(NamedTuple):
    """Who sends, as an idempotent producer says it; -1 for others."""

    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1


class Sent:
    """A batch that a client sent to a partition, at least once.

    `refusals` are the codes one of which the broker must answer with; none for good batches.
    `is_doubled` is set when the broker had reason to forget an idempotent batch and take it
    twice; `told` are all offsets it was said to be at.
    """

    __slots__ = (
        "fate",
        "is_doubled",
        "offset",
        "payload",
        "producer",
        "refusals",
        "timestamps",
        "told",
        "uid",
        "values",
    )

    def __init__(
        self,
        uid: int,
        values: tuple[bytes, ...],
        timestamps: tuple[int, ...],
        producer: Producer,
        payload: bytes,
        refusals: frozenset[ErrorCode] = frozenset(),
    ) -> None:
        self.uid = uid
        self.values = values
        self.timestamps = timestamps
        self.producer = producer
        self.payload = payload
        self.refusals = refusals
        self.fate = Fate.OPEN
        self.offset = -1
        self.is_doubled = False
        self.told: set[int] = set()

    @property
    def is_zstd(self) -> bool:
        """True if the records are compressed with zstd, which old versions of Produce refuse."""
        return parse_header(self.payload, 0).compression == ZSTD

    def __repr__(self) -> str:
        return f"batch {self.uid} ({len(self.values)} records, {self.producer}, {self.fate.value})"

    def lose(self) -> None:
        """Forget the batch as if it had never been there."""
        self.fate = Fate.LOST
        self.told.clear()

    @property
    def count(self) -> int:
        return len(self.values)

    @property
    def last_sequence(self) -> int:
        return (self.producer.base_sequence + self.count - 1) & 0x7FFFFFFF


def make_sent(
    uid: int,
    chance: Generator,
    now_ms: int,
    *,
    most_records: int,
    most_bytes: int,
    codec: int = 0,
    producer: Producer | None = None,
) -> Sent:
    """Return a good batch: each record's value begins with the batch's number and its own."""
    producer = producer or Producer()
    count = chance.randint(1, most_records)
    values = tuple(
        f"{uid}.{index}.".encode() + bytes(chance.randrange(most_bytes)) for index in range(count)
    )
    timestamps = tuple(now_ms - chance.choice((0, 0, 0, 1, 50, 2000)) for _ in range(count))
    payload = build_batch(
        [
            (b"key-%d" % index, value, timestamp, ())
            for index, (value, timestamp) in enumerate(zip(values, timestamps, strict=True))
        ],
        codec=codec,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=producer.base_sequence,
    )
    return Sent(uid, values, timestamps, producer, bytes(payload))


def uid_of(value: bytes | None) -> int:
    """Return the number of the batch a record belongs to; -1 if it is none of ours."""
    digits = (value or b"").partition(b".")[0]
    return int(digits) if digits.isdigit() else -1


def damaged(sent: Sent, chance: Generator) -> Sent:
    """Return the same batch with something wrong that the broker must notice."""
    payload = bytearray(sent.payload)
    match chance.randrange(5):
        case 0:
            payload[-1] ^= 1
            codes = frozenset({ErrorCode.CORRUPT_MESSAGE})
        case 1:
            payload[MAGIC_OFFSET] = 1
            codes = frozenset({ErrorCode.INVALID_RECORD})
        case 2:
            payload[CRC_OFFSET] ^= 0x80
            codes = frozenset({ErrorCode.CORRUPT_MESSAGE})
        case 3:
            payload[HEADER_SIZE] = 0x01  # no length of a record, no beginning of any codec
            seal(payload, 0, len(payload))
            codes = frozenset({ErrorCode.INVALID_RECORD})
        case _:
            del payload[-1:]
            codes = frozenset({ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE})
    return Sent(sent.uid, sent.values, sent.timestamps, sent.producer, bytes(payload), codes)
