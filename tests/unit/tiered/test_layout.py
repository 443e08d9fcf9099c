"""The keys of remote objects."""

from __future__ import annotations

import pytest

from ottla.tiered.layout import (
    KINDS,
    SegmentObject,
    TopicDirectory,
    decode_log_start,
    encode_log_start,
    log_start_key,
    object_key,
    parse_object,
    parse_partition,
    parse_topic_directory,
    partition_prefix,
    topic_prefix,
)

TOPIC_ID = bytes(range(16))
SEGMENT_ID = bytes(range(100, 116))


def test_keys_are_as_documented() -> None:
    prefix = partition_prefix("orders", TOPIC_ID, 7)
    assert prefix == "orders-AAECAwQFBgcICQoLDA0ODw/7/"
    key = object_key(prefix, 1234, SEGMENT_ID, "leader-epoch-checkpoint")
    assert key == prefix + "00000000000000001234-ZGVmZ2hpamtsbW5vcHFycw.leader-epoch-checkpoint"
    assert log_start_key(prefix) == prefix + "log-start-offset"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("offset", [0, 1, 10**19 // 2, 2**63 - 1])
@pytest.mark.parametrize("segment_id", [SEGMENT_ID, b"\xfb" * 16, b"\xff" * 16])
def test_an_object_can_be_parsed(kind: str, offset: int, segment_id: bytes) -> None:
    key = object_key("t/", offset, segment_id, kind)
    assert parse_object(key.removeprefix("t/")) == SegmentObject(offset, segment_id, kind)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".log",
        "log-start-offset",
        "00000000000000000001-ZGVmZ2hpamtsbW5vcHFycw",
        "00000000000000000001-ZGVmZ2hpamtsbW5vcHFycw.other",
        "00000000000000000001-ZGVmZ2hpamtsbW5vcHFycw.log.log",
        "00000000000000000001-ZGVmZ2hpamtsbW5vcHFycx.log",  # spare bits are set
        "00000000000000000001-ZGVmZ2hpamtsbW5vcHFy!!.log",
        "00000000000000000001-ZGVmZ2hpamtsbW5vcHFy.log",
        "00000000000000000001_ZGVmZ2hpamtsbW5vcHFycw.log",
        "0000000000000000001-ZGVmZ2hpamtsbW5vcHFycw.log",
        "99999999999999999999-ZGVmZ2hpamtsbW5vcHFycw.log",
        "-0000000000000000001-ZGVmZ2hpamtsbW5vcHFycw.log",
        "0000000000000000000\u0661-ZGVmZ2hpamtsbW5vcHFycw.log",
    ],
)
def test_other_names_are_no_objects(name: str) -> None:
    assert parse_object(name) is None


@pytest.mark.parametrize("topic", ["t", "a-b", "a-AAECAwQFBgcICQoLDA0ODw", "x" * 249])
def test_a_topic_directory_can_be_parsed(topic: str) -> None:
    for topic_id in (TOPIC_ID, b"\xfb" * 16):
        name = topic_prefix(topic, topic_id).removesuffix("/")
        assert len(name) <= 255
        assert parse_topic_directory(name) == TopicDirectory(topic[:232], topic_id)


@pytest.mark.parametrize("name", ["", "t", "-AAECAwQFBgcICQoLDA0ODw", "tAAECAwQFBgcICQoLDA0ODw"])
def test_other_names_are_no_topic_directories(name: str) -> None:
    assert parse_topic_directory(name) is None


def test_partitions() -> None:
    assert [parse_partition(text) for text in ("0", "17", str(2**31 - 1))] == [0, 17, 2**31 - 1]
    for text in ("", "00", "-1", "+1", " 1", "1.0", str(2**31), "9" * 5000):
        assert parse_partition(text) is None


def test_the_log_start_offset() -> None:
    for offset in (0, 42, 2**63 - 1):
        assert decode_log_start(encode_log_start(offset)) == offset
    for content in (b"", b"x", b"-1", b"1 2", b"9" * 20, b"1" * 100, b"\xff", b"1" + b" " * 50):
        with pytest.raises(ValueError, match="is not an offset"):
            decode_log_start(content)
