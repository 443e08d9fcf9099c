"""Segments: their batches and records, and reports of damage."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from ottla.cli.dump_log.command import dump
from ottla.cli.dump_log.source import CHUNK_BYTES
from ottla.metadata.records import TopicRecord
from ottla.metadata.serde import encode_record
from ottla.records.batch import MAGIC_OFFSET, RECORD_COUNT_OFFSET, parse_header, seal
from ottla.records.control import ControlType, build_marker
from ottla.records.record import NewRecord, build_batch
from tests.support.dump_log import BASE, LOG, damages_of, lines_of, make_batches, write_file


def test_every_field_of_a_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batch = build_batch(
        [(b"k", b"v", 1234, ())] * 3, base_offset=7, codec=4, producer_id=9, producer_epoch=2,
        base_sequence=40, leader_epoch=3, is_transactional=True,
    )  # fmt: skip
    path = write_file(tmp_path, "00000000000000000007.log", batch)
    assert dump([path], as_json=True) == 0
    assert lines_of(capsys, "batch") == [
        {
            "file": path,
            "kind": "batch",
            "baseOffset": 7,
            "lastOffset": 9,
            "count": 3,
            "baseSequence": 40,
            "lastSequence": 42,
            "producerId": 9,
            "producerEpoch": 2,
            "partitionLeaderEpoch": 3,
            "isTransactional": True,
            "isControl": False,
            "deleteHorizonMs": None,
            "position": 0,
            "timestampType": "CreateTime",
            "maxTimestamp": 1234,
            "size": len(batch),
            "magic": 2,
            "compresscodec": "zstd",
            "crc": parse_header(batch, 0).crc,
            "isvalid": True,
        }
    ]


def test_records_with_deep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_file(tmp_path, LOG, b"".join(make_batches(6)))
    assert dump([path], deep=True, as_json=True) == 0
    records = lines_of(capsys, "record")
    assert [record["offset"] for record in records] == list(range(100, 112))
    assert records[0] == {
        "file": path, "kind": "record", "offset": 100, "timestamp": 0, "keySize": 3, "valueSize": 5,
        "sequence": -1, "key": "key", "value": "value", "headers": [],
    }  # fmt: skip
    assert records[1]["key"] is None
    assert records[1]["value"] == {"hex": "ff00"}
    assert records[1]["headers"] == [["h", None]]


def test_control_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marker = build_marker(
        ControlType.ABORT, producer_id=1, producer_epoch=0, coordinator_epoch=8, timestamp=1
    )
    leader_change = build_batch(
        [(b"\0\0\0\x02", b"\0\0" + b"\0\0\0\x05" + b"\x01\x01\0", 1, ())],
        base_offset=1, is_control=True,
    )  # fmt: skip
    path = write_file(tmp_path, "00000000000000000000.log", marker + leader_change)
    assert dump([path], deep=True, as_json=True) == 0
    abort, change = lines_of(capsys, "record")
    assert (abort["controlType"], abort["coordinatorEpoch"]) == ("ABORT", 8)
    assert change["controlType"] == "LEADER_CHANGE"
    assert change["data"] == {"version": 0, "leaderId": 5, "voters": [], "grantingVoters": []}


def test_metadata_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = encode_record(TopicRecord(name="orders", topic_id=bytes(15) + b"\x07"))
    records: list[NewRecord] = [(None, known, 1, ()), (None, b"\x01\x7f\x00later", 1, ())]
    path = write_file(tmp_path, "00000000000000000000.log", build_batch(records))
    assert dump([path], cluster_metadata=True, as_json=True) == 0
    topic, unknown = lines_of(capsys, "record")
    assert topic["type"] == "TopicRecord"
    assert topic["data"] == {"name": "orders", "topicId": "AAAAAAAAAAAAAAAAAAAABw"}
    assert unknown["type"] == "type 127 version 0"


def test_a_metadata_record_cut_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = encode_record(TopicRecord(name="orders"))
    path = write_file(tmp_path, LOG, build_batch([(None, known[:-3], 1, ())], base_offset=BASE))
    assert dump([path], cluster_metadata=True, as_json=True) == 1
    (damage,) = lines_of(capsys, "damage")
    assert "offset 100" in str(damage["reason"])


def test_a_wrong_crc_is_damage_and_reading_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = make_batches(3)
    batches[1][-1] ^= 1
    path = write_file(tmp_path, LOG, b"".join(batches))
    assert dump([path], deep=True, as_json=True) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (damage,) = (line for line in lines if line["kind"] == "damage")
    assert damage["position"] == len(batches[0])
    assert damage["bytesLeft"] == len(batches[1]) + len(batches[2])
    assert "CRC" in damage["reason"]
    assert [line["isvalid"] for line in lines if line["kind"] == "batch"] == [True, False, True]
    assert [line["offset"] for line in lines if line["kind"] == "record"] == [100, 101, 104, 105]


@pytest.mark.parametrize("torn", [1, 30, 61, 70])
def test_a_cut_batch_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], torn: int
) -> None:
    batches = make_batches(2)
    path = write_file(tmp_path, LOG, batches[0] + batches[1][:torn])
    ((position, reason),) = damages_of(capsys, path)
    assert position == len(batches[0])
    assert f"truncated: only {torn} bytes are left" in str(reason)


def test_nonsense_between_batches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches = make_batches(3)
    garbage = b"\x02" * 100 + b"\xff" * 200
    path = write_file(tmp_path, LOG, batches[0] + garbage + batches[1] + batches[2])
    assert dump([path], as_json=True) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (damage,) = (line for line in lines if line["kind"] == "damage")
    assert damage["position"] == len(batches[0])
    assert damage["resumesAt"] == len(batches[0]) + 300
    assert [line["baseOffset"] for line in lines if line["kind"] == "batch"] == [100, 102, 104]


def test_nonsense_across_the_pieces_in_which_a_file_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = make_batches(2)
    for size in range(CHUNK_BYTES - 70, CHUNK_BYTES + 20, 3):
        path = write_file(tmp_path, LOG, batches[0] + b"\xee" * size + batches[1])
        dump([path], as_json=True)
        (damage,) = lines_of(capsys, "damage")
        assert damage["resumesAt"] == len(batches[0]) + size


def test_zeros_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches = make_batches(1)
    path = write_file(tmp_path, LOG, batches[0] + bytes(1000))
    ((position, reason),) = damages_of(capsys, path)
    assert position == len(batches[0])
    assert "zero bytes" in str(reason)


def test_a_magic_no_batch_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches = make_batches(1)
    batches[0][MAGIC_OFFSET] = 7
    assert damages_of(capsys, write_file(tmp_path, LOG, batches[0]))[0][0] == 0


def test_offsets_that_go_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = make_batches(2)
    path = write_file(tmp_path, LOG, second + first)
    assert damages_of(capsys, path) == [(len(second), "offset 100 should be 104 or more")]


def test_offsets_below_the_segments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_file(tmp_path, LOG, make_batches(1, first=98)[0])
    assert damages_of(capsys, path) == [(0, "offset 98 should be 100 or more")]


def test_offsets_too_far_for_the_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_file(tmp_path, LOG, make_batches(1, first=BASE + 2**31)[0])
    ((_, reason),) = damages_of(capsys, path)
    assert "too far" in str(reason)


def test_gaps_are_no_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_file(tmp_path, LOG, make_batches(1)[0] + make_batches(1, first=500)[0])
    assert damages_of(capsys, path) == []


def test_leader_epochs_that_go_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches = make_batches(1)[0] + make_batches(1, first=102, epoch=4)[0]
    ((_, reason),) = damages_of(capsys, write_file(tmp_path, LOG, batches))
    assert reason == "leader epoch 4 after 5"


def test_more_records_than_offsets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (batch,) = make_batches(1)
    batch[RECORD_COUNT_OFFSET + 3] = 3
    seal(batch, 0, len(batch))
    path = write_file(tmp_path, LOG, batch)
    assert damages_of(capsys, path) == [(0, "3 records with a last offset delta of 1")]


def test_records_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (batch,) = make_batches(1)
    batch[61] = 0x7F
    seal(batch, 0, len(batch))
    path = write_file(tmp_path, LOG, batch)
    assert damages_of(capsys, path) == []
    ((position, reason),) = damages_of(capsys, path, deep=True)
    assert position == 0
    assert str(reason).startswith("records: ")


def test_old_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

    builder = LegacyRecordBatchBuilder(magic=1, compression_type=1, batch_size=1 << 20)
    builder.append(0, 77, b"k", b"v")
    data = bytearray(builder.build())
    data[:8] = (BASE).to_bytes(8, "big")
    path = write_file(tmp_path, LOG, data + make_batches(1, first=101)[0])
    assert dump([path], deep=True, as_json=True) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    old, new = (line for line in lines if line["kind"] == "batch")
    assert (old["magic"], old["lastOffset"], old["compresscodec"]) == (1, 100, "gzip")
    assert new["magic"] == 2
    assert [line["offset"] for line in lines if line["kind"] == "record"] == [100, 101, 102]


def test_memory_stays_bounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = b"".join(make_batches(2000))
    large = build_batch([(b"k", bytes(16 << 20), 1, ())], base_offset=4100, leader_epoch=5)
    path = write_file(tmp_path, LOG, small + large)
    tracemalloc.start()
    try:
        assert dump([path], verify_only=True) == 0
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


def test_lengths_that_lie_allocate_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (batch,) = make_batches(1)
    batch[8:12] = b"\x7f\xff\xff\xff"
    path = write_file(tmp_path, LOG, batch)
    tracemalloc.start()
    try:
        assert dump([path], deep=True) == 1
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
