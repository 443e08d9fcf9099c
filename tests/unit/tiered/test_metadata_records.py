"""The records of __remote_log_metadata, in Kafka's bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.state.leader_epochs import EpochEntry
from ottla.tiered.metadata_records import (
    PartitionDelete,
    PartitionDeleteState,
    RemotePartition,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
    decode_metadata,
    encode_metadata,
    metadata_partition,
)
from ottla.wire.primitives import DecodeError

TOPIC = RemotePartition("orders", bytes(range(16)), 3)
SEGMENT = SegmentMetadata(
    TOPIC, b"s" * 16, 100, 199, 17, 1, 18, (EpochEntry(4, 100), EpochEntry(6, 150)), 4096
)


def test_a_segment_has_kafkas_bytes() -> None:
    expected = (
        "010000"  # versions of the frame and of the record, with the type between them
        "07" + b"orders".hex() + bytes(range(16)).hex() + "00000003" + "00"
        + (b"s" * 16).hex() + "00"
        + "0000000000000064" "00000000000000c7" "00000001" "0000000000000011" "0000000000000012"
        + "03" "00000004" "0000000000000064" "00" "00000006" "0000000000000096" "00"
        + "00001000" "00" "00" "00"
    )  # fmt: skip
    assert encode_metadata(SEGMENT).hex() == expected


def test_custom_metadata_of_others_says_nothing() -> None:
    content = encode_metadata(SEGMENT._replace(clean_upto=7))
    ours = b"\x0a\x00" + (7).to_bytes(8, "big")
    assert content.count(ours) == 1
    for theirs in (b"\x0a\x01" + bytes(8), b"\x04abc", b"\x01", b"\x00"):
        assert decode_metadata(content.replace(ours, theirs)) == SEGMENT


def test_an_update_has_kafkas_bytes() -> None:
    update = SegmentUpdate(TOPIC, b"s" * 16, 2, 19, SegmentState.COPY_FINISHED)
    expected = (
        "010100" "07" + b"orders".hex() + bytes(range(16)).hex() + "00000003" + "00"
        + (b"s" * 16).hex() + "00" "00000002" "0000000000000013" "00" "01" "00"
    )  # fmt: skip
    assert encode_metadata(update).hex() == expected


RECORDS = [
    SEGMENT,
    SEGMENT._replace(has_aborted=False),
    SEGMENT._replace(clean_upto=250),
    SEGMENT._replace(clean_upto=0, replaces=(b"a" * 16, b"b" * 16), has_aborted=False),
    SEGMENT._replace(leader_epochs=(), state=SegmentState.DELETE_STARTED),
    SegmentUpdate(TOPIC, b"s" * 16, 2, 19, SegmentState.DELETE_FINISHED),
    SegmentUpdate(TOPIC, b"s" * 16, 2, 19, SegmentState.COPY_FINISHED, clean_upto=77),
    PartitionDelete(TOPIC, 1, 20, PartitionDeleteState.FINISHED),
]


@pytest.mark.parametrize("record", RECORDS)
def test_records_are_read_as_they_were_written(record: SegmentMetadata) -> None:
    assert decode_metadata(encode_metadata(record)) == record


@given(st.sampled_from(RECORDS), st.data())
def test_a_damaged_record_is_refused_and_nothing_else_happens(
    record: SegmentMetadata, data: st.DataObject
) -> None:
    value = bytearray(encode_metadata(record))
    position = data.draw(st.integers(0, len(value) - 1))
    value[position] = data.draw(st.integers(0, 255))
    for damaged in (bytes(value), bytes(value[:position])):
        try:
            decode_metadata(damaged)
        except DecodeError:
            pass


def test_records_of_other_types_are_skipped() -> None:
    assert decode_metadata(b"\x01\x09\x00anything") is None
    assert decode_metadata(b"\x01\x00\x07anything") is None
    assert decode_metadata(b"\x02\x00\x00anything") is None


def java_int(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number


def kafkas_choice(topic_id: bytes, partition: int, count: int) -> int:
    """Return what Kafka's RemoteLogMetadataTopicPartitioner returns, with Java's arithmetic."""
    from ottla.client.producer.partitioner import murmur2

    most, least = int.from_bytes(topic_id[:8]), int.from_bytes(topic_id[8:])
    hashed = 1
    for number in (least ^ (least >> 32), most ^ (most >> 32), partition):
        hashed = java_int(31 * hashed + java_int(number))
    return (murmur2((hashed & 0xFFFFFFFF).to_bytes(4, "big")) & 0x7FFFFFFF) % count


@given(st.binary(min_size=16, max_size=16), st.integers(0, 10_000), st.integers(1, 100))
def test_the_metadata_partition_is_kafkas_choice(
    topic_id: bytes, partition: int, count: int
) -> None:
    expected = kafkas_choice(topic_id, partition, count)
    assert metadata_partition(topic_id, partition, count) == expected
