"""The compiled loops of the sink, compared with a decoder and a hash in plain Python."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.producer.partitioner import murmur2
from ottla.model.ids import TopicPartition
from ottla.records.batch import crc_of, parse_header
from ottla.records.compression import CODECS
from ottla.records.record import records_of
from pyspark_ottla.sink.partitioner import NoSuchPartition, Partitioner, PartitionRows
from pyspark_ottla.sink.record_batch import Batch, OpenBatch, size_alone
from pyspark_ottla.sink.rows import rows_of

HEADERS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
T0 = TopicPartition("t", 0)
NOW = 1_700_000_000_000
Row: TypeAlias = tuple[bytes | None, bytes | None, list[dict[str, object]] | None]

texts = st.none() | st.binary(max_size=40) | st.binary(min_size=120, max_size=200)
headers = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=5), "value": texts}), max_size=4
)
rows = st.lists(st.tuples(texts, texts, headers), min_size=1, max_size=30)


def arrow(records: list[Row]) -> pyarrow.RecordBatch:
    return pyarrow.record_batch(
        {
            "key": pyarrow.array([key for key, _, _ in records], pyarrow.binary()),
            "value": pyarrow.array([value for _, value, _ in records], pyarrow.binary()),
            "headers": pyarrow.array([found for _, _, found in records], HEADERS),
        }
    )


def in_one_batch(batch: pyarrow.RecordBatch, capacity: int = 1 << 20, codec: int = 0) -> Batch:
    taken = rows_of(batch, "t")
    everything = PartitionRows(T0, np.arange(taken.size, dtype=np.int32), 0, taken.size)
    filled = OpenBatch(T0, capacity)
    assert filled.add(taken.columns, everything, 0, NOW) == taken.size
    return filled.close(codec, None)


@settings(max_examples=60, deadline=None)
@given(records=rows, skipped=st.integers(0, 3), codec=st.sampled_from(list(CODECS.values())))
def test_rows_are_read_back(records: list[Row], skipped: int, codec: int) -> None:
    first: Row = (b"skipped", b"x", [{"key": "k", "value": b"v"}])
    sliced = arrow([first] * skipped + records)
    batch = in_one_batch(sliced.slice(skipped), codec=codec)
    batch.set_producer(7, 3, 99)
    header = parse_header(batch.data, 0)
    assert header.crc == crc_of(memoryview(batch.data), 0, len(batch.data))
    assert header.size == len(batch.data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 99)
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW)
    assert [
        (record.key, record.value, [{"key": k, "value": v} for k, v in record.headers])
        for record in records_of(batch.data)
    ] == [(key, value, found or []) for key, value, found in records]


@pytest.mark.parametrize("kind", [pyarrow.string(), pyarrow.large_string(), pyarrow.large_binary()])
def test_strings_and_large_columns(kind: pyarrow.DataType) -> None:
    texts = ["a", None, "ü" * 300, ""]
    made = pyarrow.record_batch(
        {"value": pyarrow.array(texts, pyarrow.string()).cast(kind), "else": [1, 2, 3, 4]}
    )
    found = [(record.key, record.value) for record in records_of(in_one_batch(made).data)]
    assert found == [(None, None if text is None else text.encode()) for text in texts]


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=50), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_keys_go_where_java_puts_them(keys: list[bytes], count: int) -> None:
    taken = rows_of(arrow([(key, b"v", None) for key in keys]), "t")
    split = list(Partitioner(lambda topic: count, 1000).split(taken))
    placed = {
        int(row): part.partition.partition
        for part in split
        for row in part.rows[part.first : part.end]
    }
    assert placed == {row: (murmur2(key) & 0x7FFFFFFF) % count for row, key in enumerate(keys)}
    for part in split:
        of_one = part.rows[part.first : part.end].tolist()
        assert of_one == sorted(of_one)


def test_rows_without_a_key_stay_for_a_batch_and_then_move_on() -> None:
    partitioner = Partitioner(lambda topic: 5, 1000)
    taken = rows_of(arrow([(None, b"x" * 100, None)] * 1000), "t")
    sizes = Counter(
        {part.partition.partition: part.end - part.first for part in partitioner.split(taken)}
    )
    assert sum(sizes.values()) == 1000
    assert set(sizes) == set(range(5))
    assert all(size % 10 == 0 for size in sizes.values())


def test_keys_may_be_ignored_for_the_choice() -> None:
    partitioner = Partitioner(lambda topic: 3, 10**9, ignore_keys=True)
    taken = rows_of(arrow([(b"%d" % n, b"x", None) for n in range(100)]), "t")
    assert [part.end - part.first for part in partitioner.split(taken)] == [100]


def test_topics_and_partitions_of_columns() -> None:
    made = pyarrow.record_batch(
        {
            "value": pyarrow.array([b"%d" % n for n in range(6)]),
            "topic": ["a", "b", "a", "c", "b", "a"],
            "partition": pyarrow.array([1, 0, None, 0, 2, 0], pyarrow.int32()),
        }
    )
    counts = {"a": 2, "b": 3, "c": 1}
    split = list(Partitioner(counts.__getitem__, 1000).split(rows_of(made, None)))
    placed = {
        int(row): part.partition for part in split for row in part.rows[part.first : part.end]
    }
    assert placed.pop(2).topic == "a"
    assert {row: str(partition) for row, partition in placed.items()} == {
        0: "a-1",
        1: "b-0",
        3: "c-0",
        4: "b-2",
        5: "a-0",
    }
    overridden = Partitioner({"d": 3}.__getitem__, 1000).split(rows_of(made, "d"))
    assert {part.partition.topic for part in overridden} == {"d"}


@pytest.mark.parametrize("partition", [-1, 3, 2**31 - 1])
def test_a_partition_that_is_not_there(partition: int) -> None:
    made = pyarrow.record_batch(
        {"value": [b"v"], "partition": pyarrow.array([partition], pyarrow.int32())}
    )
    with pytest.raises(NoSuchPartition, match=f"partition {partition} of topic t.*0 to 2"):
        list(Partitioner(lambda topic: 3, 1000).split(rows_of(made, "t")))


def test_a_null_topic_and_a_null_header_key_are_refused() -> None:
    with pytest.raises(ValueError, match=r"null topic present.*option"):
        rows_of(pyarrow.record_batch({"value": [b"v", b"w"], "topic": ["t", None]}), None)
    for wrong in ({"key": None, "value": b"v"}, None):
        made = pyarrow.record_batch({"value": [b"v"], "headers": pyarrow.array([[wrong]], HEADERS)})
        with pytest.raises(ValueError, match="no key"):
            rows_of(made, "t")


@pytest.mark.parametrize("room", [0, -1])
def test_a_batch_takes_what_fits_and_no_more(room: int) -> None:
    made = arrow([(b"k", b"v" * 50, [{"key": "h", "value": None}])] * 3)
    taken = rows_of(made, "t")
    whole = in_one_batch(made).size
    filled = OpenBatch(T0, whole + room)
    part = PartitionRows(T0, np.arange(3, dtype=np.int32), 0, 3)
    assert filled.add(taken.columns, part, 0, NOW) == 3 + room
    assert filled.records == 3 + room
    assert len(filled.close(0, None).data) <= whole + room
    one = in_one_batch(made.slice(0, 1))
    assert size_alone(taken.columns, 0) == one.size


@pytest.mark.parametrize("count", [1, 10])
def test_a_complete_batch_keeps_its_rows_while_the_next_one_is_filled(count: int) -> None:
    values = [b"%02d" % number * 40 for number in range(20)]
    taken = rows_of(arrow([(None, value, None) for value in values]), "t")
    part = PartitionRows(T0, np.arange(20, dtype=np.int32), 0, 20)
    filled = OpenBatch(T0, 1000)
    made = []
    for first in range(0, 20, count):
        filled.add(taken.columns, part._replace(end=first + count), first, NOW)
        made.append(filled.close(0, None))
    assert [record.value for batch in made for record in records_of(batch.data)] == values


def test_a_full_batch_is_not_copied_and_a_small_one_takes_little_memory() -> None:
    taken = rows_of(arrow([(None, b"v" * 80, None)] * 10), "t")
    part = PartitionRows(T0, np.arange(10, dtype=np.int32), 0, 10)
    filled = OpenBatch(T0, 1000)
    filled.add(taken.columns, part, 0, NOW)
    assert isinstance(filled.close(0, None).data.obj, np.ndarray)
    filled.add(taken.columns, part._replace(end=1), 0, NOW)
    assert isinstance(filled.close(0, None).data.obj, bytearray)


def test_later_rows_of_a_batch_have_their_own_time() -> None:
    taken = rows_of(arrow([(None, b"v", None)] * 3), "t")
    part = PartitionRows(T0, np.arange(3, dtype=np.int32), 0, 3)
    filled = OpenBatch(T0, 1000)
    filled.add(taken.columns, part._replace(end=1), 0, NOW)
    filled.add(taken.columns, part._replace(end=2), 1, NOW + 1000)
    filled.add(taken.columns, part, 2, NOW - 5)  # a clock that was set back
    batch = filled.close(0, None)
    assert [record.timestamp for record in records_of(batch.data)] == [NOW, NOW + 1000, NOW + 1000]
    assert parse_header(batch.data, 0).max_timestamp == NOW + 1000
    assert filled.records == 0


def test_halves_hold_the_same_records() -> None:
    made = arrow([(b"%d" % n, b"v", [{"key": "h", "value": b"%d" % n}]) for n in range(5)])
    batch = in_one_batch(made, codec=CODECS["zstd"])
    first, second = batch.split()
    assert (first.records, second.records) == (2, 3)
    assert [record.key for half in (first, second) for record in records_of(half.data)] == [
        b"%d" % n for n in range(5)
    ]
    assert parse_header(second.data, 0).compression == CODECS["zstd"]
