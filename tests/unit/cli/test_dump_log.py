from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from struct import pack

import pytest

from ottla.cli.app import run
from ottla.cli.dump_log import dump
from ottla.cli.dump_source import CHUNK_BYTES
from ottla.log.checkpoints import encode_lines, encode_offsets
from ottla.log.producers import ProducerBatch, ProducerEntry
from ottla.log.snapshot import encode_snapshot
from ottla.metadata.records import TopicRecord
from ottla.metadata.serde import encode_record
from ottla.model.ids import TopicPartition
from ottla.records.batch import MAGIC_OFFSET, RECORD_COUNT_OFFSET, parse_header, seal
from ottla.records.control import ControlType, build_marker
from ottla.records.record import NewRecord, build_batch

LOG = "00000000000000000100.log"
INDEX = "00000000000000000100.index"
TIME_INDEX = "00000000000000000100.timeindex"
BASE = 100

Line = Mapping[str, object]


def _batches(count: int = 4, *, first: int = BASE, epoch: int = 5) -> list[bytearray]:
    """Batches of two records, 1,000 ms apart."""
    return [
        build_batch(
            [(b"key", b"value", 1000 * n, ()), (None, b"\xff\x00", 1000 * n + 1, [("h", None)])],
            base_offset=first + 2 * n,
            codec=n % 5,
            leader_epoch=epoch,
        )
        for n in range(count)
    ]


def _positions(batches: list[bytearray]) -> list[int]:
    return [sum(map(len, batches[:n])) for n in range(len(batches))]


def _write(directory: Path, name: str, content: bytes) -> str:
    path = directory / name
    path.write_bytes(content)
    return str(path)


def _lines(capsys: pytest.CaptureFixture[str], kind: str) -> list[Line]:
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [line for line in lines if line["kind"] == kind]


def _damages(
    capsys: pytest.CaptureFixture[str], path: str, *, deep: bool = False
) -> list[tuple[object, object]]:
    """Positions and reasons; the exit code must go with them."""
    code = dump([path], deep=deep, as_json=True)
    damages = _lines(capsys, "damage")
    assert code == (1 if damages else 0)
    return [(damage["position"], damage["reason"]) for damage in damages]


# Segments


def test_every_field_of_a_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batch = build_batch(
        [(b"k", b"v", 1234, ())] * 3, base_offset=7, codec=4, producer_id=9, producer_epoch=2,
        base_sequence=40, leader_epoch=3, is_transactional=True,
    )  # fmt: skip
    path = _write(tmp_path, "00000000000000000007.log", batch)
    assert dump([path], as_json=True) == 0
    assert _lines(capsys, "batch") == [
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
    path = _write(tmp_path, LOG, b"".join(_batches(6)))
    assert dump([path], deep=True, as_json=True) == 0
    records = _lines(capsys, "record")
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
    path = _write(tmp_path, "00000000000000000000.log", marker + leader_change)
    assert dump([path], deep=True, as_json=True) == 0
    abort, change = _lines(capsys, "record")
    assert (abort["controlType"], abort["coordinatorEpoch"]) == ("ABORT", 8)
    assert change["controlType"] == "LEADER_CHANGE"
    assert change["data"] == {"version": 0, "leaderId": 5, "voters": [], "grantingVoters": []}


def test_metadata_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = encode_record(TopicRecord(name="orders", topic_id=bytes(15) + b"\x07"))
    records: list[NewRecord] = [(None, known, 1, ()), (None, b"\x01\x7f\x00later", 1, ())]
    path = _write(tmp_path, "00000000000000000000.log", build_batch(records))
    assert dump([path], cluster_metadata=True, as_json=True) == 0
    topic, unknown = _lines(capsys, "record")
    assert topic["type"] == "TopicRecord"
    assert topic["data"] == {"name": "orders", "topicId": "AAAAAAAAAAAAAAAAAAAABw"}
    assert unknown["type"] == "type 127 version 0"


def test_a_metadata_record_cut_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = encode_record(TopicRecord(name="orders"))
    path = _write(tmp_path, LOG, build_batch([(None, known[:-3], 1, ())], base_offset=BASE))
    assert dump([path], cluster_metadata=True, as_json=True) == 1
    (damage,) = _lines(capsys, "damage")
    assert "offset 100" in str(damage["reason"])


def test_a_wrong_crc_is_damage_and_reading_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = _batches(3)
    batches[1][-1] ^= 1
    path = _write(tmp_path, LOG, b"".join(batches))
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
    batches = _batches(2)
    path = _write(tmp_path, LOG, batches[0] + batches[1][:torn])
    ((position, reason),) = _damages(capsys, path)
    assert position == len(batches[0])
    assert f"{torn} bytes are there" in str(reason) or f"{torn} are there" in str(reason)


def test_nonsense_between_batches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches = _batches(3)
    garbage = b"\x02" * 100 + b"\xff" * 200
    path = _write(tmp_path, LOG, batches[0] + garbage + batches[1] + batches[2])
    assert dump([path], as_json=True) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (damage,) = (line for line in lines if line["kind"] == "damage")
    assert damage["position"] == len(batches[0])
    assert damage["resumesAt"] == len(batches[0]) + 300
    assert [line["baseOffset"] for line in lines if line["kind"] == "batch"] == [100, 102, 104]


def test_nonsense_across_the_pieces_in_which_a_file_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = _batches(2)
    for size in range(CHUNK_BYTES - 70, CHUNK_BYTES + 20, 3):
        path = _write(tmp_path, LOG, batches[0] + b"\xee" * size + batches[1])
        dump([path], as_json=True)
        (damage,) = _lines(capsys, "damage")
        assert damage["resumesAt"] == len(batches[0]) + size


def test_zeros_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches = _batches(1)
    path = _write(tmp_path, LOG, batches[0] + bytes(1000))
    ((position, reason),) = _damages(capsys, path)
    assert position == len(batches[0])
    assert "zero bytes" in str(reason)


def test_a_magic_no_batch_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches = _batches(1)
    batches[0][MAGIC_OFFSET] = 7
    assert _damages(capsys, _write(tmp_path, LOG, batches[0]))[0][0] == 0


def test_offsets_that_go_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = _batches(2)
    path = _write(tmp_path, LOG, second + first)
    assert _damages(capsys, path) == [(len(second), "offset 100 where 104 or more is due")]


def test_offsets_below_the_segments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _write(tmp_path, LOG, _batches(1, first=98)[0])
    assert _damages(capsys, path) == [(0, "offset 98 where 100 or more is due")]


def test_offsets_too_far_for_the_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _write(tmp_path, LOG, _batches(1, first=BASE + 2**31)[0])
    ((_, reason),) = _damages(capsys, path)
    assert "too far" in str(reason)


def test_gaps_are_no_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _write(tmp_path, LOG, _batches(1)[0] + _batches(1, first=500)[0])
    assert _damages(capsys, path) == []


def test_leader_epochs_that_go_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches = _batches(1)[0] + _batches(1, first=102, epoch=4)[0]
    ((_, reason),) = _damages(capsys, _write(tmp_path, LOG, batches))
    assert reason == "leader epoch 4 after 5"


def test_more_records_than_offsets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (batch,) = _batches(1)
    batch[RECORD_COUNT_OFFSET + 3] = 3
    seal(batch, 0, len(batch))
    path = _write(tmp_path, LOG, batch)
    assert _damages(capsys, path) == [(0, "3 records with a last offset delta of 1")]


def test_records_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (batch,) = _batches(1)
    batch[61] = 0x7F
    seal(batch, 0, len(batch))
    path = _write(tmp_path, LOG, batch)
    assert _damages(capsys, path) == []
    ((position, reason),) = _damages(capsys, path, deep=True)
    assert position == 0
    assert str(reason).startswith("records: ")


def test_old_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

    builder = LegacyRecordBatchBuilder(magic=1, compression_type=1, batch_size=1 << 20)
    builder.append(0, 77, b"k", b"v")
    data = bytearray(builder.build())
    data[:8] = (BASE).to_bytes(8, "big")
    path = _write(tmp_path, LOG, data + _batches(1, first=101)[0])
    assert dump([path], deep=True, as_json=True) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    old, new = (line for line in lines if line["kind"] == "batch")
    assert (old["magic"], old["lastOffset"], old["compresscodec"]) == (1, 100, "gzip")
    assert new["magic"] == 2
    assert [line["offset"] for line in lines if line["kind"] == "record"] == [100, 101, 102]


def test_memory_stays_bounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = b"".join(_batches(2000))
    large = build_batch([(b"k", bytes(16 << 20), 1, ())], base_offset=4100, leader_epoch=5)
    path = _write(tmp_path, LOG, small + large)
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
    (batch,) = _batches(1)
    batch[8:12] = b"\x7f\xff\xff\xff"
    path = _write(tmp_path, LOG, batch)
    tracemalloc.start()
    try:
        assert dump([path], deep=True) == 1
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


# Indexes


def _segment(directory: Path) -> tuple[list[bytearray], list[int]]:
    batches = _batches(10)
    _write(directory, LOG, b"".join(batches))
    return batches, _positions(batches)


def _offset_index(directory: Path, entries: list[tuple[int, int]], room: int = 0) -> str:
    content = b"".join(pack(">ii", offset - BASE, position) for offset, position in entries)
    return _write(directory, INDEX, content + bytes(8 * room))


def _time_index(directory: Path, entries: list[tuple[int, int]], room: int = 0) -> str:
    content = b"".join(pack(">qi", timestamp, offset - BASE) for timestamp, offset in entries)
    return _write(directory, TIME_INDEX, content + bytes(12 * room))


@pytest.mark.parametrize("room", [0, 1000])
def test_a_sound_offset_index(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], room: int
) -> None:
    _, positions = _segment(tmp_path)
    path = _offset_index(tmp_path, [(105, positions[2]), (111, positions[5])], room)
    assert dump([path], as_json=True) == 0
    entries = _lines(capsys, "offset index entry")
    assert [(e["offset"], e["position"]) for e in entries] == [
        (105, positions[2]),
        (111, positions[5]),
    ]


def test_an_entry_for_several_batches_at_once_is_sound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kafka gives what it appends together one entry: the first position, the last offset."""
    _, positions = _segment(tmp_path)
    path = _offset_index(tmp_path, [(107, positions[1]), (119, positions[9])])
    assert _damages(capsys, path) == []


def test_damaged_offset_indexes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches, positions = _segment(tmp_path)
    size = sum(map(len, batches))
    cases = {
        "offset 103 after 103": [(103, positions[1]), (103, positions[3])],
        f"position {positions[1]} after {positions[1]}": [(103, positions[1]), (107, positions[1])],
        "offset 99 after 99": [(99, positions[1])],
        f"no batch begins at position {positions[1] + 1}": [(103, positions[1] + 1)],
        "offset 103 leads to a batch that begins with 106": [(103, positions[3])],
        f"position {size} is past the segment's end": [(119, size)],
        "the entry before is for 107, which this batch has": [
            (107, positions[1]),
            (109, positions[3]),
        ],
    }  # fmt: skip
    for reason, entries in cases.items():
        damages = _damages(capsys, _offset_index(tmp_path, entries))
        assert damages[0] == (8 * (len(entries) - 1), reason)


def test_an_offset_index_past_the_segments_last_offset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, positions = _segment(tmp_path)
    path = _offset_index(tmp_path, [(120, positions[9])])
    assert _damages(capsys, path) == [(8, "the segment ends before offset 120")]


def test_zeros_inside_an_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, positions = _segment(tmp_path)
    path = _offset_index(tmp_path, [(103, positions[1]), (BASE, 0), (107, positions[3])])
    assert _damages(capsys, path)[0] == (8, "offset 100 after 103")


def test_an_index_of_a_broken_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, positions = _segment(tmp_path)
    path = _offset_index(tmp_path, [(103, positions[1])])
    _write(tmp_path, INDEX, Path(path).read_bytes() + b"abc")
    assert _damages(capsys, path) == [(8, "3 bytes are no whole entry of 8")]


def test_an_index_of_a_damaged_segment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches, positions = _segment(tmp_path)
    batches[4][MAGIC_OFFSET] = 9
    _write(tmp_path, LOG, b"".join(batches))
    path = _offset_index(tmp_path, [(103, positions[1]), (111, positions[5]), (115, positions[7])])
    ((position, reason),) = _damages(capsys, path)
    assert position == 8
    assert f"position {positions[4]}" in str(reason)


def test_an_index_without_its_segment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _offset_index(tmp_path, [(105, 10), (111, 20)])
    assert dump([path], as_json=True) == 0
    assert "not verified" in str(_lines(capsys, "note")[0]["text"])


def test_a_deleted_index_is_verified_against_the_deleted_segment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = _batches(3)
    _write(tmp_path, LOG + ".deleted", b"".join(batches))
    content = pack(">ii", 5, _positions(batches)[2])
    path = _write(tmp_path, INDEX + ".deleted", content)
    assert _damages(capsys, path) == []
    path = _write(tmp_path, INDEX + ".deleted", pack(">ii", 5, 3))
    assert _damages(capsys, path) == [(0, "no batch begins at position 3")]


def test_a_sound_time_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _segment(tmp_path)
    path = _time_index(tmp_path, [(3001, 107), (6001, 113), (9001, 119)])
    assert dump([path], as_json=True) == 0
    entries = _lines(capsys, "time index entry")
    assert [entry["timestamp"] for entry in entries] == [3001, 6001, 9001]
    assert [entry["offset"] for entry in entries] == [107, 113, 119]


def test_only_the_time_index_of_a_closed_segment_must_cover_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _segment(tmp_path)
    assert _damages(capsys, _time_index(tmp_path, [(3001, 107)], room=50)) == []
    assert _damages(capsys, _time_index(tmp_path, [(3001, 107)])) == []
    (tmp_path / "00000000000000000999.timeindex").touch()
    assert _damages(capsys, _time_index(tmp_path, [(3001, 107)])) == [
        (12, "the segment's largest timestamp is 9001, not 3001")
    ]


def test_damaged_time_indexes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _segment(tmp_path)
    cases = {
        "timestamp 3001 after 3001": [(3001, 107), (3001, 109)],
        "offset 105 after 107": [(3001, 107), (3002, 105)],
        "the batch of offset 107 has timestamp 3001": [(3000, 107)],
        "the segment ends before offset 120": [(9001, 120)],
    }
    for reason, entries in cases.items():
        damages = _damages(capsys, _time_index(tmp_path, entries, room=1))
        assert damages == [(12 * (len(entries) - 1), reason)]


def test_a_time_index_that_hides_a_larger_timestamp(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = build_batch([(b"k", b"v", 99_000, ())], base_offset=BASE)
    _write(tmp_path, LOG, late + b"".join(_batches(3, first=101)))
    ((_, reason),) = _damages(capsys, _time_index(tmp_path, [(2001, 106)], room=1))
    assert reason == "timestamp 99000 comes before offset 106, and is larger"


def test_aborted_transactions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = pack(">hqqqq", 0, 7, 100, 110, 100) + pack(">hqqqq", 0, 8, 105, 120, 105)
    path = _write(tmp_path, "00000000000000000100.txnindex", good)
    assert dump([path], as_json=True) == 0
    assert [line["producerId"] for line in _lines(capsys, "aborted transaction")] == [7, 8]
    bad = good + pack(">hqqqq", 0, 9, 100, 119, 100) + pack(">hqqqq", 3, 9, 100, 130, 100) + b"x"
    path = _write(tmp_path, "00000000000000000100.txnindex", bad)
    assert _damages(capsys, path) == [
        (68, "last offset 119 after 120"),
        (102, "version 3 is not known"),
        (136, "1 bytes are no whole entry of 34"),
    ]


# The other files


def _snapshot() -> bytes:
    batch = ProducerBatch(5, 9, 100, 104, 1234)
    return encode_snapshot({42: ProducerEntry(3, (batch,), 1234, 6, 100)})


def test_a_producer_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _write(tmp_path, "00000000000000000105.snapshot", _snapshot())
    assert dump([path], as_json=True) == 0
    assert _lines(capsys, "producer") == [
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
    ((position, reason),) = _damages(capsys, _write(tmp_path, name, flipped))
    assert position == 2
    assert "CRC" in str(reason)
    assert _damages(capsys, _write(tmp_path, name, b"\0\x09" + good[2:])) == [
        (0, "version 9 is not known")
    ]
    assert len(_damages(capsys, _write(tmp_path, name, good[:-5]))) == 2
    assert _damages(capsys, _write(tmp_path, name, good[:4])) == [
        (0, "4 bytes are too few for a snapshot")
    ]


def test_offset_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = encode_offsets({TopicPartition("a", 0): 5, TopicPartition("b", 3): 0})
    for name in ("recovery-point", "replication", "log-start", "cleaner"):
        path = _write(tmp_path, f"{name}-offset-checkpoint", content)
        assert dump([path], as_json=True) == 0
        entries = _lines(capsys, "checkpoint entry")
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
    path = _write(tmp_path, "replication-offset-checkpoint", content)
    assert _damages(capsys, path)[0][0] == position


def test_leader_epochs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _write(tmp_path, "leader-epoch-checkpoint", encode_lines(["0 0", "3 10"]))
    assert dump([path], as_json=True) == 0
    entries = _lines(capsys, "checkpoint entry")
    assert [(entry["epoch"], entry["startOffset"]) for entry in entries] == [(0, 0), (3, 10)]
    path = _write(tmp_path, "leader-epoch-checkpoint", encode_lines(["3 10", "2 20"]))
    assert _damages(capsys, path) == [(9, "epoch 2 from 20 after epoch 3 from 10")]


def test_properties(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    meta = _write(tmp_path, "meta.properties", b"#comment\nversion=1\nnode.id=4\n")
    partition = _write(
        tmp_path, "partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"
    )
    assert dump([meta, partition], as_json=True) == 0
    rows = [(line["key"], line["value"]) for line in _lines(capsys, "property")]
    assert rows == [
        ("version", "1"),
        ("node.id", "4"),
        ("version", "0"),
        ("topic_id", "AAAAAAAAAAAAAAAAAAAAAQ"),
    ]
    broken = _write(tmp_path, "partition.metadata", b"version: 0\ntopic_id: short\n")
    assert "topic_id" in str(_damages(capsys, broken)[0][1])


def test_json_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dump([_write(tmp_path, ".kafka_cleanshutdown", b'{"version":0}')]) == 0
    assert dump([_write(tmp_path, ".kafka_cleanshutdown", b"")]) == 0
    assert dump([_write(tmp_path, "quorum-state", b'{"version":')]) == 1


# Directories that Apache Kafka 4.3.0 wrote

KAFKA_FILES = Path(__file__).parents[1] / "records" / "kafka-4.3"


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


# The command


def test_missing_and_unknown_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sound = _write(tmp_path, LOG, _batches(1)[0])
    missing, unknown = str(tmp_path / "absent.log"), _write(tmp_path, "notes.txt", b"")
    assert dump([sound, missing, unknown]) == 2
    output = capsys.readouterr()
    assert output.out == "", "nothing is shown before the command line makes sense"
    assert missing in output.err
    assert unknown in output.err
    assert ".timeindex" in output.err


def test_a_directory_is_all_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _segment(tmp_path)
    _offset_index(tmp_path, [])
    _write(tmp_path, ".lock", b"")
    below = tmp_path / "topic-0"
    below.mkdir()
    _write(below, LOG, _batches(1)[0])
    assert dump([str(tmp_path)], as_json=True) == 0
    assert [Path(str(line["file"])).name for line in _lines(capsys, "file")] == [INDEX, LOG]
    assert dump([str(tmp_path)], as_json=True, recursive=True) == 0
    assert len(_lines(capsys, "file")) == 3


def test_verify_only_shows_no_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _write(tmp_path, LOG, b"".join(_batches(3)))
    assert dump([path], deep=True, verify_only=True, as_json=True) == 0
    kinds = [json.loads(line)["kind"] for line in capsys.readouterr().out.splitlines()]
    assert kinds == ["file", "summary"]


def test_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches = _batches(2)
    path = _write(tmp_path, LOG, batches[0] + batches[1] + b"torn")
    assert run(["dump-log", path]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{path}: segment, {sum(map(len, batches)) + 4} bytes"
    assert lines[1].split() == [
        "offsets", "count", "position", "size", "codec", "largest", "timestamp", "epoch", "crc",
    ]  # fmt: skip
    assert lines[2].split()[:5] == ["100-101", "2", "0", str(len(batches[0])), "none"]
    assert "1970-01-01 00:00:01.001" in lines[3]
    assert lines[4].startswith(f"  DAMAGED at {sum(map(len, batches))}: ")
    assert lines[5].endswith("damaged in one place")


def test_tables_of_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records: list[NewRecord] = [
        (b"k", b"line\nline", 1, [("h", b"\xff")]), (None, b"long" * 100, 2, ()),
    ]  # fmt: skip
    path = _write(tmp_path, LOG, build_batch(records, base_offset=BASE))
    assert run(["dump-log", "--deep", path]) == 0
    output = capsys.readouterr().out
    assert "batch: offsets 100-101, count 2" in output
    assert "'line\\nline'" in output
    assert "h=0xff" in output
    assert "(400 characters)" in output
    assert "no damage" in output


def test_pages_do_not_lose_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _write(tmp_path, LOG, b"".join(_batches(1203)))
    assert run(["dump-log", path]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.endswith(" ok")]
    assert len(rows) == 1203


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dump-log"]) == 2
    assert run(["dump-log", "--no-such-option", "x.log"]) == 2
    assert run(["dump-log", "/does/not/exist.log"]) == 2
