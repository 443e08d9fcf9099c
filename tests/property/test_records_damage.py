"""Damaged or hostile bytes raise CorruptBatch: no other error, no allocation past the limit."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.batch import HEADER_SIZE, Batch, CorruptBatch, scan
from ottla.records.compression import CODECS, compress, decompress, recompress
from ottla.records.legacy import Message, crc_of_message, records_of_message, scan_any
from ottla.records.record import NewRecord, build_batch, records_of
from tests.support.records import null_keys

LIMIT = 1 << 20
RECORDS: list[NewRecord] = [
    (None if n == 17 else b"k%d" % n, b"value" * n, 1000 + n, [("h", b"x"), ("i", None)] * (n % 2))
    for n in range(20)
]
BATCHES = [bytes(build_batch(RECORDS, codec=codec)) for codec in CODECS.values()]
KEYED = bytes(build_batch([record for record in RECORDS if record[0] is not None]))


def _message(magic: int, attributes: int, value: bytes) -> bytes:
    body = bytes((magic, attributes)) + bytes(8 if magic else 0) + b"\xff" * 4
    body += len(value).to_bytes(4, "big") + value
    return bytes(8) + (len(body) + 4).to_bytes(4, "big") + bytes(4) + body


MESSAGES = [
    _message(magic, codec, compress(codec, _message(magic, 0, b"value" * 9) * 3))
    for magic in (0, 1)
    for codec in (0, 1, 2, 3)
]

payloads = st.binary(max_size=300)
positions = st.one_of(st.integers(0, HEADER_SIZE + 20), st.integers(0, 1 << 16))
edge_bytes = st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF])
edits = st.lists(
    st.one_of(
        st.tuples(st.just("set"), positions, st.binary(min_size=1, max_size=1)),
        st.tuples(st.just("set"), positions, st.builds(lambda n: bytes((n,)), edge_bytes)),
        st.tuples(st.just("set"), positions, st.sampled_from([b"\xff" * 4, b"\x7f" + b"\xff" * 3])),
        st.tuples(st.just("insert"), positions, st.binary(min_size=1, max_size=12)),
        st.tuples(st.just("delete"), positions, st.binary(min_size=1, max_size=12)),
        st.tuples(st.just("cut"), positions, st.just(b"")),
    ),
    min_size=1,
    max_size=4,
)


def _edit(data: bytes, changes: list[tuple[str, int, bytes]]) -> bytearray:
    result = bytearray(data)
    for what, anywhere, content in changes:
        position = anywhere % (len(result) + 1)
        if what == "cut":
            del result[position:]
        elif what == "insert":
            result[position:position] = content
        elif what == "delete":
            del result[position : position + len(content)]
        else:
            result[position : position + len(content)] = content
    return result


@settings(max_examples=1500)
@given(st.sampled_from([*BATCHES, KEYED]), edits)
def test_damaged_batches(data: bytes, changes: list[tuple[str, int, bytes]]) -> None:
    damaged = _edit(data, changes)
    try:
        records = records_of(damaged, LIMIT)
    except CorruptBatch:
        records = None
    try:
        found = null_keys(damaged, 0, len(damaged))
    except CorruptBatch:
        assert records is None
    else:
        assert records is None or bool(found) == any(record.key is None for record in records)


@given(st.sampled_from(BATCHES), edits)
def test_damaged_batches_recompressed(data: bytes, changes: list[tuple[str, int, bytes]]) -> None:
    damaged = _edit(data, changes)
    try:
        for batch in scan(damaged, 0, len(damaged)):
            recompress(damaged, batch.position, batch.end, 4)
    except CorruptBatch:
        pass


@given(st.sampled_from(BATCHES), st.sampled_from(BATCHES), edits)
def test_scans_make_progress_and_stay_inside(
    first: bytes, second: bytes, changes: list[tuple[str, int, bytes]]
) -> None:
    damaged = _edit(first + second, changes)
    position = 0
    try:
        for batch in scan(damaged, 0, len(damaged)):
            assert batch.position == position
            assert position < batch.end <= len(damaged)
            position = batch.end
    except CorruptBatch as error:
        where = error.position
    else:
        where = position
    assert where == position


@given(st.sampled_from(sorted(CODECS.values())), payloads, edits)
def test_damaged_compressed_data(
    codec: int, data: bytes, changes: list[tuple[str, int, bytes]]
) -> None:
    damaged = _edit(compress(codec, data * 9), changes)
    try:
        assert len(decompress(codec, damaged, LIMIT)) <= LIMIT
    except CorruptBatch:
        pass


@given(st.integers(0, 7), payloads)
def test_noise_as_compressed_data(codec: int, data: bytes) -> None:
    try:
        assert len(decompress(codec, data, LIMIT)) <= LIMIT
    except CorruptBatch:
        pass


@settings(max_examples=500)
@given(st.sampled_from(MESSAGES), st.sampled_from(MESSAGES), edits)
def test_damaged_message_sets(
    first: bytes, second: bytes, changes: list[tuple[str, int, bytes]]
) -> None:
    damaged = _edit(first + second, changes)
    position = 0
    try:
        for entry in scan_any(damaged, 0, len(damaged)):
            assert entry.position == position
            position = entry.end
            if isinstance(entry, Message):
                crc_of_message(memoryview(damaged), entry)
                records_of_message(damaged, entry, LIMIT)
            else:
                assert isinstance(entry, Batch)
    except CorruptBatch as error:
        where = error.position
    else:
        where = position
    assert where <= position


@given(st.binary(max_size=400))
def test_noise(data: bytes) -> None:
    for read in (
        lambda: records_of(data),
        lambda: null_keys(data, 0, len(data)),
        lambda: list(scan(data, 0, len(data))),
        lambda: list(scan_any(data, 0, len(data))),
    ):
        try:
            read()
        except CorruptBatch:
            pass
