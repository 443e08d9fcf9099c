"""Index files are checked against their segments."""

from __future__ import annotations

from pathlib import Path
from struct import pack

import pytest

from ottla.cli.dump_log.command import dump
from ottla.records.batch import MAGIC_OFFSET
from ottla.records.record import build_batch
from tests.support.dump_log import (
    BASE,
    INDEX,
    LOG,
    damages_of,
    lines_of,
    make_batches,
    positions_of,
    write_file,
    write_offset_index,
    write_segment,
    write_time_index,
)


@pytest.mark.parametrize("room", [0, 1000])
def test_a_sound_offset_index(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], room: int
) -> None:
    _, positions = write_segment(tmp_path)
    path = write_offset_index(tmp_path, [(105, positions[2]), (111, positions[5])], room)
    assert dump([path], as_json=True) == 0
    entries = lines_of(capsys, "offset index entry")
    assert [(e["offset"], e["position"]) for e in entries] == [
        (105, positions[2]),
        (111, positions[5]),
    ]


def test_an_entry_for_several_batches_at_once_is_sound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kafka writes one entry for batches it appends together: first position, last offset."""
    _, positions = write_segment(tmp_path)
    path = write_offset_index(tmp_path, [(107, positions[1]), (119, positions[9])])
    assert damages_of(capsys, path) == []


def test_damaged_offset_indexes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches, positions = write_segment(tmp_path)
    size = sum(map(len, batches))
    cases = {
        "offset 103 after 103": [(103, positions[1]), (103, positions[3])],
        f"position {positions[1]} after {positions[1]}": [(103, positions[1]), (107, positions[1])],
        "offset 99 after 99": [(99, positions[1])],
        f"no batch begins at position {positions[1] + 1}": [(103, positions[1] + 1)],
        "the entry for offset 103 points to a batch that begins at 106": [(103, positions[3])],
        f"position {size} is after the end of the segment": [(119, size)],
        "this batch contains 107, the offset of the previous entry": [
            (107, positions[1]),
            (109, positions[3]),
        ],
    }  # fmt: skip
    for reason, entries in cases.items():
        damages = damages_of(capsys, write_offset_index(tmp_path, entries))
        assert damages[0] == (8 * (len(entries) - 1), reason)


def test_an_offset_index_past_the_segments_last_offset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, positions = write_segment(tmp_path)
    path = write_offset_index(tmp_path, [(120, positions[9])])
    assert damages_of(capsys, path) == [(8, "the segment ends before offset 120")]


def test_zeros_inside_an_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, positions = write_segment(tmp_path)
    path = write_offset_index(tmp_path, [(103, positions[1]), (BASE, 0), (107, positions[3])])
    assert damages_of(capsys, path)[0] == (8, "offset 100 after 103")


def test_an_index_of_a_broken_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, positions = write_segment(tmp_path)
    path = write_offset_index(tmp_path, [(103, positions[1])])
    write_file(tmp_path, INDEX, Path(path).read_bytes() + b"abc")
    assert damages_of(capsys, path) == [(8, "3 bytes at the end are less than an entry of 8 bytes")]


def test_an_index_of_a_damaged_segment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches, positions = write_segment(tmp_path)
    batches[4][MAGIC_OFFSET] = 9
    write_file(tmp_path, LOG, b"".join(batches))
    path = write_offset_index(
        tmp_path, [(103, positions[1]), (111, positions[5]), (115, positions[7])]
    )
    ((position, reason),) = damages_of(capsys, path)
    assert position == 8
    assert f"position {positions[4]}" in str(reason)


def test_an_index_without_its_segment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_offset_index(tmp_path, [(105, 10), (111, 20)])
    assert dump([path], as_json=True) == 0
    assert "not checked" in str(lines_of(capsys, "note")[0]["text"])


def test_a_deleted_index_is_verified_against_the_deleted_segment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = make_batches(3)
    write_file(tmp_path, LOG + ".deleted", b"".join(batches))
    content = pack(">ii", 5, positions_of(batches)[2])
    path = write_file(tmp_path, INDEX + ".deleted", content)
    assert damages_of(capsys, path) == []
    path = write_file(tmp_path, INDEX + ".deleted", pack(">ii", 5, 3))
    assert damages_of(capsys, path) == [(0, "no batch begins at position 3")]


def test_a_sound_time_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_segment(tmp_path)
    path = write_time_index(tmp_path, [(3001, 107), (6001, 113), (9001, 119)])
    assert dump([path], as_json=True) == 0
    entries = lines_of(capsys, "time index entry")
    assert [entry["timestamp"] for entry in entries] == [3001, 6001, 9001]
    assert [entry["offset"] for entry in entries] == [107, 113, 119]


def test_only_the_time_index_of_a_closed_segment_must_cover_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_segment(tmp_path)
    assert damages_of(capsys, write_time_index(tmp_path, [(3001, 107)], room=50)) == []
    assert damages_of(capsys, write_time_index(tmp_path, [(3001, 107)])) == []
    (tmp_path / "00000000000000000999.timeindex").touch()
    assert damages_of(capsys, write_time_index(tmp_path, [(3001, 107)])) == [
        (12, "the segment's largest timestamp is 9001, not 3001")
    ]


def test_damaged_time_indexes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_segment(tmp_path)
    cases = {
        "timestamp 3001 after 3001": [(3001, 107), (3001, 109)],
        "offset 105 after 107": [(3001, 107), (3002, 105)],
        "the batch of offset 107 has timestamp 3001": [(3000, 107)],
        "the segment ends before offset 120": [(9001, 120)],
    }
    for reason, entries in cases.items():
        damages = damages_of(capsys, write_time_index(tmp_path, entries, room=1))
        assert damages == [(12 * (len(entries) - 1), reason)]


def test_a_time_index_that_hides_a_larger_timestamp(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = build_batch([(b"k", b"v", 99_000, ())], base_offset=BASE)
    write_file(tmp_path, LOG, late + b"".join(make_batches(3, first=101)))
    ((_, reason),) = damages_of(capsys, write_time_index(tmp_path, [(2001, 106)], room=1))
    assert reason == "the larger timestamp 99000 comes before offset 106"


def test_aborted_transactions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = pack(">hqqqq", 0, 7, 100, 110, 100) + pack(">hqqqq", 0, 8, 105, 120, 105)
    path = write_file(tmp_path, "00000000000000000100.txnindex", good)
    assert dump([path], as_json=True) == 0
    assert [line["producerId"] for line in lines_of(capsys, "aborted transaction")] == [7, 8]
    bad = good + pack(">hqqqq", 0, 9, 100, 119, 100) + pack(">hqqqq", 3, 9, 100, 130, 100) + b"x"
    path = write_file(tmp_path, "00000000000000000100.txnindex", bad)
    assert damages_of(capsys, path) == [
        (68, "last offset 119 after 120"),
        (102, "version 3 is unknown"),
        (136, "1 bytes at the end are less than an entry of 34 bytes"),
    ]
