"""Batches and messages that other clients and Kafka itself wrote."""

from __future__ import annotations

import warnings
from pathlib import Path

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBatch
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AioMessages

from ottla.records.compression import CODECS
from ottla.records.legacy import scan_any
from ottla.records.record import build_batch, records_of
from pyspark_ottla.decode.aborted_transactions import AbortedFilter
from pyspark_ottla.decode.decoder import Decoder, FetchedBatches
from pyspark_ottla.errors import DamagedRecords

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # at import, kafka-python has its own
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBatch

COLUMNS = ("key", "value", "offset", "timestamp", "timestampType", "headers")
WRITTEN: list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (0, 1000, b"k", b"v" * 500, [("h", b"1"), ("ключ", b"")]),
    (1, 1001, None, b"", []),
    (2, 999, b"", None, [("n", None)]),
]
KAFKA_FILES = Path(__file__).parents[2] / "records" / "kafka-4.3"


def decode(data: bytes, low: int = 0, high: int = 1 << 62) -> list[dict[str, object]]:
    decoder = Decoder(COLUMNS)
    view = memoryview(bytearray(data))
    made = list(decoder.decode(FetchedBatches("t", 0, view, low, high, AbortedFilter(()))))
    last = decoder.finish()
    made += [last] if last is not None else []
    rows = []
    for batch in made:
        batch.validate(full=True)
        at = batch.schema.get_field_index("timestamp")
        numbers = batch.set_column(at, "timestamp", batch["timestamp"].cast(pa.int64()))
        rows += numbers.to_pylist()
    return rows


@pytest.mark.parametrize("builder", [AioBatch, KafkaPythonBatch])
@pytest.mark.parametrize("codec", CODECS.values())
def test_batches_of_other_clients(builder: type[AioBatch], codec: int) -> None:
    batch = builder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for offset, timestamp, key, value, headers in WRITTEN:
        batch.append(offset, timestamp, key, value, headers)
    assert decode(bytes(batch.build())) == [
        {
            "key": key,
            "value": value,
            "offset": offset,
            "timestamp": 1000 * timestamp,
            "timestampType": 0,
            "headers": [{"key": name, "value": content} for name, content in headers] or None,
        }
        for offset, timestamp, key, value, headers in WRITTEN
    ]


@pytest.mark.parametrize(
    ("magic", "codec"), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)]
)
def test_messages_from_before_kafka_0_11(magic: int, codec: int) -> None:
    builder = AioMessages(magic=magic, compression_type=codec, batch_size=1 << 20)
    for offset in range(5):
        builder.append(offset, 1000 + offset, b"k", None if offset == 3 else b"v%d" % offset)
    after = build_batch([(b"new", b"new", 7, ())], base_offset=5)
    old = bytearray(builder.build())
    if magic and codec:  # a broker gives the wrapper the offset of its last message
        old[:8] = (4).to_bytes(8, "big")
    rows = decode(bytes(old + after), 1)
    assert [row["offset"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["value"] for row in rows] == [b"v1", b"v2", None, b"v4", b"new"]
    assert [row["timestampType"] for row in rows] == [0 if magic else -1] * 4 + [0]
    times = [1_001_000, 1_002_000, 1_003_000, 1_004_000] if magic else [-1000] * 4
    assert [row["timestamp"] for row in rows] == [*times, 7000]


def test_a_damaged_old_message() -> None:
    builder = AioMessages(magic=1, compression_type=0, batch_size=1 << 20)
    builder.append(0, 1, b"k", b"v")
    data = bytearray(builder.build())
    data[-1] ^= 1
    with pytest.raises(DamagedRecords, match="checksum"):
        decode(bytes(data))


@pytest.mark.parametrize("name", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_segments_that_kafka_wrote(name: str) -> None:
    data = (KAFKA_FILES / f"{name}.log").read_bytes()
    wanted = [
        record
        for batch in scan_any(data, 0, len(data))
        for record in records_of(data[batch.position : batch.end])
        if not batch.attributes & 0x20
    ]
    assert [(row["offset"], row["key"], row["value"]) for row in decode(data)] == [
        (record.offset, record.key, record.value) for record in wanted
    ]
