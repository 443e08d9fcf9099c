"""Produce, InitProducerId and DescribeProducers. All of them leave the same records in both."""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack_into

from compare.case import Case, Seen, asking, case, in_versions
from ottla.model.ids import ZERO_UUID
from ottla.records.batch import CRC_OFFSET, MAGIC_OFFSET, RECORD_COUNT_OFFSET
from ottla.records.checksum import crc32c
from ottla.records.record import NewRecord, build_batch
from ottla.wire.message import Message
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

BASE_TIME = 1_700_000_000_000
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


def record(number: int, key: bytes | None = b"k", timestamp: int | None = None) -> NewRecord:
    when = BASE_TIME + number * 1000 if timestamp is None else timestamp
    return key, b"value-%d" % number, when, ()


def new_batch(records: list[NewRecord], **fields: int) -> bytes:
    return bytes(build_batch(records, **fields))  # type: ignore[arg-type]


def batch(*numbers: int, codec: int = 0) -> bytes:
    return new_batch([record(number) for number in numbers], codec=codec)


def produce(
    topic: str,
    records: bytes | None,
    *,
    index: int = 0,
    acks: int = -1,
    topic_id: bytes = ZERO_UUID,
    transactional_id: str | None = None,
) -> ProduceRequest:
    partition = PartitionProduceData(index=index, records=records)
    topic_data = TopicProduceData(name=topic, topic_id=topic_id, partition_data=[partition])
    return ProduceRequest(
        acks=acks, timeout=5000, topic_data=[topic_data], transactional_id=transactional_id
    )


def altered(data: bytes, position: int, layout: str, value: int, *, seal: bool = True) -> bytes:
    """Return a batch with a changed field and, unless told otherwise, the right checksum."""
    changed = bytearray(data)
    pack_into(layout, changed, position, value)
    if seal:
        pack_into(">I", changed, CRC_OFFSET, crc32c(bytes(changed[CRC_OFFSET + 4 :])))
    return bytes(changed)


def idempotent(seen: Seen, sequence: int, epoch: int | None = None) -> bytes:
    return new_batch(
        [record(50)],
        producer_id=seen.number("producer"),
        producer_epoch=seen.number("producer epoch") if epoch is None else epoch,
        base_sequence=sequence,
    )


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _good()
    yield from _refused()
    yield from _idempotent()
    yield from _describe()


def _good() -> Iterator[Case]:
    for version in (3, 5, 8, 9, 12):
        yield case("one batch", version, produce("full", batch(version)))
    yield asking(
        "one batch by id", 13, ProduceRequest,
        lambda seen: produce("", batch(13), topic_id=seen.topic_id("full")),
    )  # fmt: skip
    for codec, name in ((GZIP, "gzip"), (SNAPPY, "snappy"), (LZ4, "lz4"), (ZSTD, "zstd")):
        yield case(name, 8, produce("full", batch(20, 21, codec=codec), index=1))
    yield case("acks 1", 8, produce("full", batch(30), acks=1))
    yield case("log append time", 8, produce("appended", batch(31, 32)))
    yield case("with a key to a compacted topic", 8, produce("compacted", batch(33)))
    yield case("to a topic with codec zstd", 8, produce("zstd", batch(34)))
    for number in range(3):
        yield case(f"to delete {number}", 8, produce("deleted-from", batch(number)))


def _refused() -> Iterator[Case]:
    yield from in_versions("unknown topic", (3, 7, 9, 12), produce("nowhere", batch(1)))
    yield case("unknown topic id", 13, produce("", batch(1), topic_id=b"\x01" * 16))
    yield case("no topic id", 13, produce("", batch(1)))
    yield from in_versions("unknown partition", (3, 8, 12), produce("refused", batch(1), index=9))
    yield case("negative partition", 8, produce("refused", batch(1), index=-1))
    yield from in_versions("acks 2", (3, 8, 12), produce("refused", batch(1), acks=2))
    yield case("acks -2", 9, produce("refused", batch(1), acks=-2))
    yield case("empty name", 8, produce("", batch(1)))
    yield case("bad name", 8, produce("a b", batch(1)))
    yield case("no topics", 9, ProduceRequest(acks=1, timeout=1000))
    yield case(
        "no partitions", 9, ProduceRequest(acks=1, topic_data=[TopicProduceData(name="refused")])
    )
    yield from in_versions("null records", (9,), produce("refused", None))
    yield case("empty records", 9, produce("refused", b""))
    yield from in_versions("zstd", (3, 6), produce("refused", batch(1, codec=ZSTD)))
    yield case("two batches", 9, produce("refused", batch(1) + batch(2)))
    yield case("bytes after the batch", 9, produce("refused", batch(1) + b"xyz"))
    yield case("long bytes after the batch", 9, produce("refused", batch(1) + bytes(70)))
    yield case("cut off", 9, produce("refused", batch(1)[:-3]))
    yield case("shorter than a header", 9, produce("refused", batch(1)[:40]))
    yield case(
        "wrong checksum", 9, produce("refused", altered(batch(1), CRC_OFFSET, ">I", 7, seal=False))
    )
    for magic in (0, 1, 3):
        wrong = altered(batch(1), MAGIC_OFFSET, ">b", magic, seal=False)
        yield case(f"magic {magic}", 9, produce("refused", wrong))
    yield case(
        "count too large", 9, produce("refused", altered(batch(1), RECORD_COUNT_OFFSET, ">i", 9))
    )
    yield case(
        "count too small", 9, produce("refused", altered(batch(1, 2), RECORD_COUNT_OFFSET, ">i", 1))
    )
    yield case(
        "count negative", 9, produce("refused", altered(batch(1), RECORD_COUNT_OFFSET, ">i", -1))
    )
    yield case("count 0", 9, produce("refused", altered(batch(1), RECORD_COUNT_OFFSET, ">i", 0)))
    yield case("codec 5", 9, produce("refused", altered(batch(1), 21, ">h", 5)))
    yield case("codec 1 over plain records", 9, produce("refused", altered(batch(1), 21, ">h", 1)))
    yield case("garbage as records", 9, produce("refused", altered(batch(1, 2), 62, ">i", -5)))
    yield case("control batch", 9, produce("refused", new_batch([record(1)], is_control=True)))
    yield case(
        "log append time bit", 9, produce("refused", new_batch([record(1)], timestamp_type=1))
    )
    yield case("too large", 9, produce("small", new_batch([(b"k", b"v" * 500, BASE_TIME, ())])))
    yield from in_versions("too old", (7, 8, 9), produce("strict-time", batch(1, 2)))
    later = new_batch([record(1, timestamp=4_000_000_000_000)])
    yield case("in the future", 9, produce("refused", later))
    keyless = new_batch([record(1), record(2, key=None), record(3, key=None)])
    yield from in_versions("no key to a compacted topic", (7, 8, 9), produce("compacted", keyless))
    yield from in_versions("too few replicas", (3, 8), produce("insync", batch(1)))
    yield case("too few replicas, acks 1", 8, produce("insync", batch(1), acks=1))
    yield case("internal topic", 9, produce("__consumer_offsets", batch(1)))
    twice = produce("twice", batch(40))
    twice.topic_data.append(twice.topic_data[0])
    yield case("topic twice", 9, twice)


def _remember_producer(seen: Seen, answer: Message) -> None:
    assert isinstance(answer, InitProducerIdResponse)
    seen.values["producer"] = answer.producer_id
    seen.values["producer epoch"] = answer.producer_epoch


def _init(**fields: int) -> InitProducerIdRequest:
    given = {"transaction_timeout": 60_000, **fields}
    return InitProducerIdRequest(transactional_id=None, **given)  # type: ignore[arg-type]


def _idempotent() -> Iterator[Case]:
    yield from in_versions("new id", (0, 1, 2, 3, 4), _init())
    yield from in_versions("known id", (3, 4), _init(producer_id=5, producer_epoch=3))
    yield case("id without an epoch", 4, _init(producer_id=5))
    yield case("epoch without an id", 4, _init(producer_epoch=5))
    yield case("negative id", 4, _init(producer_id=-5, producer_epoch=-5))
    yield case("empty transactional id", 4, InitProducerIdRequest(transactional_id=""))
    yield case("new id to use", 4, _init(), remember=_remember_producer)
    for name, sequence, epoch in (
        ("first", 0, None), ("second", 1, None), ("second again", 1, None), ("gap", 7, None),
        ("old epoch", 2, -1), ("new epoch, sequence 3", 3, 1), ("new epoch", 0, 1),
        ("epoch before", 2, 0), ("negative sequence", -1, 1),
    ):  # fmt: skip
        for version in (9, 12) if name == "gap" else (9,):
            yield asking(
                f"idempotent: {name}", version, ProduceRequest,
                lambda seen, s=sequence, e=epoch: produce("full", idempotent(seen, s, e), index=2),  # type: ignore[misc]
            )  # fmt: skip
    unknown = new_batch([record(1)], producer_id=987_654, producer_epoch=0, base_sequence=5)
    yield case("unknown producer, sequence 5", 9, produce("full", unknown, index=2))
    plain = new_batch([record(1)], producer_id=55, producer_epoch=0, base_sequence=0)
    yield case("two idempotent batches", 9, produce("full", plain + plain, index=2))


def _describe() -> Iterator[Case]:
    def describe(topic: str, *indexes: int) -> DescribeProducersRequest:
        return DescribeProducersRequest(
            topics=[TopicRequest(name=topic, partition_indexes=list(indexes))]
        )

    yield case("producers", 0, describe("full", 2))
    yield case("without producers", 0, describe("empty", 0))
    yield case("unknown topic", 0, describe("nowhere", 0))
    yield case("unknown partition", 0, describe("full", 9))
    yield case("negative partition", 0, describe("full", -1))
    yield case("partition twice", 0, describe("empty", 0, 0))
    yield case("bad name", 0, describe("a b", 0))
    yield case("no partitions", 0, describe("full"))
    yield case("no topics", 0, DescribeProducersRequest())
