"""What is built reads back, here and in two clients' own record code, for every codec."""

from __future__ import annotations

import gzip
import warnings

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given
from hypothesis import strategies as st

from ottla.records.batch import crc_of, parse_header, scan
from ottla.records.compression import CODECS, GZIP, LZ4, SNAPPY, ZSTD, compress, decompress
from ottla.records.compression import recompress as recompress_batch
from ottla.records.record import NewRecord, Record, build_batch, records_of
from tests.support.records import null_keys

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of importlib.resources, on import
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

fields = st.none() | st.binary(max_size=300)
NO_TIMESTAMP = -1  # which aiokafka's builder takes for "no first timestamp yet"
timestamps = st.integers(min_value=NO_TIMESTAMP, max_value=2**41)
headers = st.lists(st.tuples(st.text(max_size=10), fields), max_size=3)
new_records = st.tuples(fields, fields, timestamps, headers)
batches_of_records = st.lists(new_records, min_size=1, max_size=30)
codecs = st.sampled_from(sorted(CODECS.values()))


def _as_read(records: list[NewRecord], base_offset: int) -> list[Record]:
    return [
        Record(base_offset + n, timestamp, key, value, tuple(headers))
        for n, (key, value, timestamp, headers) in enumerate(records)
    ]


@given(batches_of_records, codecs, st.integers(0, 2**62))
def test_what_is_built_reads_back(records: list[NewRecord], codec: int, base_offset: int) -> None:
    data = build_batch(records, codec=codec, base_offset=base_offset)
    (batch,) = scan(data, 0, len(data))
    assert batch.crc == crc_of(memoryview(data), 0, len(data))
    assert batch.max_timestamp == max(record[2] for record in records)
    assert batch.last_offset == base_offset + len(records) - 1
    assert records_of(data) == _as_read(records, base_offset)
    expected = [number for number, record in enumerate(records) if record[0] is None]
    assert null_keys(data, 0, len(data)) == expected


@given(batches_of_records, codecs, codecs)
def test_recompressed_batches_read_the_same(
    records: list[NewRecord], source: int, target: int
) -> None:
    data = build_batch(records, codec=source)
    result = recompress_batch(data, 0, len(data), target)
    assert parse_header(result, 0).compression == target
    assert records_of(result) == records_of(data)


@given(batches_of_records, codecs)
def test_aiokafka_reads_what_is_built(records: list[NewRecord], codec: int) -> None:
    batch = AiokafkaBatch(bytes(build_batch(records, codec=codec, base_offset=5)))
    assert batch.validate_crc()
    read = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert read == _as_read(records, 5)


@given(batches_of_records, codecs)
def test_kafka_python_reads_what_is_built(records: list[NewRecord], codec: int) -> None:
    for library in ("snappy", "lz4.frame", "zstandard"):
        pytest.importorskip(library)
    batch = KafkaPythonBatch(bytes(build_batch(records, codec=codec, base_offset=5)))
    assert batch.validate_crc()
    read = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert read == _as_read(records, 5)


@given(batches_of_records.filter(lambda records: records[0][2] != NO_TIMESTAMP), codecs)
def test_what_aiokafka_builds_reads_back(records: list[NewRecord], codec: int) -> None:
    builder = AiokafkaBuilder(
        magic=2, compression_type=codec, is_transactional=0, producer_id=1, producer_epoch=2,
        base_sequence=3, batch_size=1 << 20,
    )  # fmt: skip
    for offset, (key, value, timestamp, record_headers) in enumerate(records):
        builder.append(offset, timestamp, key, value, list(record_headers))
    data = builder.build()
    (batch,) = scan(data, 0, len(data))
    assert batch.crc == crc_of(memoryview(data), 0, len(data))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (1, 2, 3)
    assert records_of(data) == _as_read(records, 0)


payloads = st.binary(max_size=2000) | st.builds(
    lambda piece, times: piece * times, st.binary(min_size=1, max_size=50), st.integers(1, 5000)
)


@given(payloads, codecs)
def test_compression_round_trip_within_an_exact_limit(data: bytes, codec: int) -> None:
    assert bytes(decompress(codec, compress(codec, data), len(data))) == data


@given(payloads)
def test_codecs_of_other_libraries(data: bytes) -> None:
    lz4 = pytest.importorskip("lz4.frame")
    snappy = pytest.importorskip("snappy")
    zstandard = pytest.importorskip("zstandard")
    assert gzip.decompress(compress(GZIP, data)) == data
    assert lz4.decompress(compress(LZ4, data)) == data
    assert zstandard.ZstdDecompressor().decompress(
        compress(ZSTD, data), max_output_size=len(data) + 1
    ) == data  # fmt: skip
    limit = len(data)
    assert decompress(GZIP, gzip.compress(data), limit) == data
    for stored in (True, False):
        assert decompress(LZ4, lz4.compress(data, store_size=stored), limit) == data
        compressor = zstandard.ZstdCompressor(write_content_size=stored)
        assert decompress(ZSTD, compressor.compress(data), limit) == data
    assert decompress(SNAPPY, snappy.compress(data), limit) == data
