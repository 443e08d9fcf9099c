"""Producer snapshots, checkpoints, properties, and directories that Apache Kafka wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.cli.dump_log.command import dump
from ottla.log.state.producer_snapshot import encode_snapshot
from ottla.log.state.producer_table import ProducerBatch, ProducerEntry
from ottla.log.store.checkpoints import encode_lines, encode_offsets
from ottla.model.ids import TopicPartition
from ottla.model.steps import run_to_end
from tests.support.dump_log import damages_of, lines_of, write_file


def _snapshot() -> bytes:
    batch = ProducerBatch(5, 9, 100, 104, 1234)
    return encode_snapshot({42: ProducerEntry.of(3, (batch,), 1234, 6, 100)})


def test_a_producer_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_file(tmp_path, "00000000000000000105.snapshot", _snapshot())
    assert dump([path], as_json=True) == 0
    assert lines_of(capsys, "producer") == [
        {
            "file": path, "kind": "producer", "producerId": 42, "producerEpoch": 3,
            "coordinatorEpoch": 6, "currentTxnFirstOffset": 100, "firstSequence": 5,
            "lastSequence": 9, "lastOffset": 104, "offsetDelta": 4, "timestamp": 1234,
        }
    ]  # fmt: skip


def test_damaged_producer_snapshots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = _snapshot()
    name = "00000000000000000105.snapshot"
    flipped = bytearray(good)
    flipped[-1] ^= 1
    ((position, reason),) = damages_of(capsys, write_file(tmp_path, name, flipped))
    assert position == 2
    assert "CRC" in str(reason)
    assert damages_of(capsys, write_file(tmp_path, name, b"\0\x09" + good[2:])) == [
        (0, "version 9 is unknown")
    ]
    assert len(damages_of(capsys, write_file(tmp_path, name, good[:-5]))) == 2
    assert damages_of(capsys, write_file(tmp_path, name, good[:4])) == [
        (0, "4 bytes are too few for a snapshot")
    ]


def test_offset_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offsets = {TopicPartition("a", 0): 5, TopicPartition("b", 3): 0}
    content = run_to_end(encode_offsets(offsets))
    for name in ("recovery-point", "replication", "log-start", "cleaner"):
        path = write_file(tmp_path, f"{name}-offset-checkpoint", content)
        assert dump([path], as_json=True) == 0
        entries = lines_of(capsys, "checkpoint entry")
        assert [(e["topic"], e["partition"], e["offset"]) for e in entries] == [
            ("a", 0, 5),
            ("b", 3, 0),
        ]


@pytest.mark.parametrize(
    ("content", "position"),
    [(b"1\n0\n", 0), (b"0\n2\na 0 5\n", 2), (b"0\n1\na 0\n", 4), (b"0\n1\na 0 -5\n", 4),
     (b"0\n2\na 0 5\n\xff\xfe\n", 10)],
)  # fmt: skip
def test_damaged_checkpoints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, position: int
) -> None:
    path = write_file(tmp_path, "replication-offset-checkpoint", content)
    assert damages_of(capsys, path)[0][0] == position


def test_leader_epochs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_file(tmp_path, "leader-epoch-checkpoint", encode_lines(["0 0", "3 10"]))
    assert dump([path], as_json=True) == 0
    entries = lines_of(capsys, "checkpoint entry")
    assert [(entry["epoch"], entry["startOffset"]) for entry in entries] == [(0, 0), (3, 10)]
    path = write_file(tmp_path, "leader-epoch-checkpoint", encode_lines(["3 10", "2 20"]))
    assert damages_of(capsys, path) == [(9, "epoch 2 from 20 after epoch 3 from 10")]


def test_properties(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    meta = write_file(tmp_path, "meta.properties", b"#comment\nversion=1\nnode.id=4\n")
    partition = write_file(
        tmp_path, "partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"
    )
    assert dump([meta, partition], as_json=True) == 0
    rows = [(line["key"], line["value"]) for line in lines_of(capsys, "property")]
    assert rows == [
        ("version", "1"),
        ("node.id", "4"),
        ("version", "0"),
        ("topic_id", "AAAAAAAAAAAAAAAAAAAAAQ"),
    ]
    broken = write_file(tmp_path, "partition.metadata", b"version: 0\ntopic_id: short\n")
    assert "topic_id" in str(damages_of(capsys, broken)[0][1])


def test_json_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dump([write_file(tmp_path, ".kafka_cleanshutdown", b'{"version":0}')]) == 0
    assert dump([write_file(tmp_path, ".kafka_cleanshutdown", b"")]) == 0
    assert dump([write_file(tmp_path, "quorum-state", b'{"version":')]) == 1


# Directories that Apache Kafka 4.3.0 wrote

KAFKA_FILES = Path(__file__).parents[2] / "records" / "kafka-4.3"


def test_a_partition_of_kafkas(capsys: pytest.CaptureFixture[str]) -> None:
    assert dump([str(KAFKA_FILES / "txn-0")], deep=True, as_json=True) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    controls = [line["controlType"] for line in lines if "controlType" in line]
    assert controls == ["COMMIT", "ABORT"]
    (aborted,) = (line for line in lines if line["kind"] == "aborted transaction")
    assert (aborted["firstOffset"], aborted["lastOffset"]) == (4, 7)
    producers = [line for line in lines if line["kind"] == "producer"]
    assert [producer["lastOffset"] for producer in producers[-2:]] == [2, 6]


def test_the_metadata_of_kafkas(capsys: pytest.CaptureFixture[str]) -> None:
    assert dump([str(KAFKA_FILES)], recursive=True, cluster_metadata=False) == 0
    capsys.readouterr()
    path = str(KAFKA_FILES / "__cluster_metadata-0")
    assert dump([path], cluster_metadata=True, as_json=True) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    topics = [line["data"]["name"] for line in lines if line.get("type") == "TopicRecord"]
    assert sorted(topics) == ["__transaction_state", "gzip", "lz4", "none", "snappy", "txn", "zstd"]
    assert next(line for line in lines if "controlType" in line)["controlType"] == "LEADER_CHANGE"
