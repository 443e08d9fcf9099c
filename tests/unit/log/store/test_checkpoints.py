"""Checkpoints, the identity of directories and topics: bytes as Kafka writes them."""

from __future__ import annotations

import pytest

from ottla.log.file_names import offset_of, partition_of, retired_directory
from ottla.log.store.checkpoints import (
    CorruptCheckpoint,
    decode_offsets,
    encode_offsets,
    read_offsets,
)
from ottla.log.store.meta_properties import (
    CorruptMetaProperties,
    MetaProperties,
    decode_meta,
    encode_meta,
    read_meta,
    write_meta,
)
from ottla.log.store.partition_metadata import decode_topic_id, encode_topic_id, read_topic_id
from ottla.memory_files import MemoryFiles
from ottla.model.ids import ZERO_UUID, TopicPartition, uuid_from_text
from ottla.model.steps import run_to_end
from ottla.ports import write_file_atomically

OFFSETS = {TopicPartition("orders", 0): 17, TopicPartition("a.b-c_d", 12): 2**40}


def test_offsets_are_written_as_lines() -> None:
    content = b"0\n2\norders 0 17\na.b-c_d 12 1099511627776\n"
    assert run_to_end(encode_offsets(OFFSETS)) == content
    assert decode_offsets(content) == OFFSETS


def test_offsets_survive_the_file() -> None:
    files = MemoryFiles()
    files.make_dirs("/data")
    assert read_offsets(files, "/data/c") == {}
    write_file_atomically(files, "/data/c", run_to_end(encode_offsets(OFFSETS)))
    assert read_offsets(files, "/data/c") == OFFSETS


@pytest.mark.parametrize(
    "content",
    [
        b"1\n0\n",
        b"0\n2\norders 0 17\n",
        b"0\nmany\norders 0 17\n",
        b"0\n1\norders 0\n",
        b"0\n1\norders zero 17\n",
        b"\xff\xfe",
    ],
)
def test_damaged_checkpoints_are_refused(content: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode_offsets(content)


def test_an_empty_checkpoint_has_no_offsets() -> None:
    assert decode_offsets(b"") == decode_offsets(b"0\n") == decode_offsets(b"0\n0\n") == {}


META = MetaProperties("MkU3OEVBNTcwNTJENDM2Qg", 3, uuid_from_text("nkcwq6e8SCKOzPWtSlMKeg"))


def test_meta_properties_round_trip() -> None:
    files = MemoryFiles()
    files.make_dirs("/data")
    assert read_meta(files, "/data") is None
    write_meta(files, "/data", META)
    assert read_meta(files, "/data") == META


def test_meta_properties_as_kafka_writes_them() -> None:
    content = (
        b"#\n#Thu Oct 10 10:00:00 UTC 2024\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
        b"directory.id=nkcwq6e8SCKOzPWtSlMKeg\nnode.id=3\nversion=1\n"
    )
    assert decode_meta(content) == META
    assert decode_meta(encode_meta(META)) == META


def test_meta_properties_of_version_0_have_a_broker_id() -> None:
    meta = decode_meta(b"version=0\nbroker.id=5\ncluster.id=abc\n")
    assert meta == MetaProperties("abc", 5, b"")


@pytest.mark.parametrize(
    "content", [b"", b"version=1\nnode.id=1\n", b"version=1\nnode.id=x\ncluster.id=a\n"]
)
def test_incomplete_meta_properties_are_refused(content: bytes) -> None:
    with pytest.raises(CorruptMetaProperties):
        decode_meta(content)


def test_partition_metadata_round_trip() -> None:
    topic_id = uuid_from_text("nkcwq6e8SCKOzPWtSlMKeg")
    assert encode_topic_id(topic_id) == b"version: 0\ntopic_id: nkcwq6e8SCKOzPWtSlMKeg"
    assert decode_topic_id(encode_topic_id(topic_id)) == topic_id


def test_damaged_partition_metadata_is_noted() -> None:
    files = MemoryFiles()
    notes: list[str] = []
    assert read_topic_id(files, "m", notes) == ZERO_UUID
    assert notes == []
    files.open("m", create=True, writable=True).pwritev([b"version: 0\n"], 0)
    assert read_topic_id(files, "m", notes) == ZERO_UUID
    assert len(notes) == 1


def test_names_of_directories_and_files() -> None:
    assert partition_of("a-b-12") == TopicPartition("a-b", 12)
    for name in ("a", "a-", "-1", "a-x", "remote-log-index-cache", "a-1.0123-delete"):
        assert partition_of(name) is None
    assert offset_of("00000000000000000042.log") == 42
    assert offset_of("leader-epoch-checkpoint") is None


def test_retired_directories_fit_into_a_file_name() -> None:
    name = retired_directory(TopicPartition("x" * 249, 1234), bytes(16), "-delete")
    assert len(name) == 255
    assert name.endswith(f"-1234.{'00' * 16}-delete")
