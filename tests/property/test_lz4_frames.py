"""LZ4 frames are decoded to the same bytes as by the library's decoder, or are refused."""

from __future__ import annotations

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="needs ottla[spark]")
lz4 = pytest.importorskip("lz4.frame")

from pyspark_ottla.decode.lz4_frame import decompress_lz4_into  # noqa: E402

ROOM = 1 << 20
words = st.lists(st.sampled_from([b"ottla ", b"log ", bytes(40), b"\x07"]), max_size=40_000)
contents = st.one_of(words.map(b"".join), st.binary(max_size=200_000))
forms = st.fixed_dictionaries(
    {
        "block_size": st.sampled_from([0, 4, 5]),
        "block_linked": st.booleans(),
        "content_checksum": st.booleans(),
        "block_checksum": st.booleans(),
        "store_size": st.booleans(),
    }
)
independent = {"block_linked": False, "block_size": 4, "store_size": False}


def taken_apart(frame: bytes, room: int = ROOM) -> bytes:
    output = bytearray(room)
    return bytes(output[: decompress_lz4_into(memoryview(frame), memoryview(output))])


@given(contents.filter(lambda content: len(content) <= ROOM), forms)
def test_every_form_of_a_frame_gives_back_its_content(
    content: bytes, form: dict[str, bool]
) -> None:
    assert taken_apart(lz4.compress(content, **form)) == content


@given(contents, st.integers(0, 1 << 16))
def test_too_little_room_is_told_as_such_and_nothing_is_written_behind_it(
    content: bytes, room: int
) -> None:
    frame = lz4.compress(content, **independent)
    output = bytearray(b"\xee" * (room + 100))
    if len(content) <= room:
        assert decompress_lz4_into(memoryview(frame), memoryview(output)[:room]) == len(content)
    else:
        with pytest.raises(cramjam.DecompressionError, match="failed to write whole buffer"):
            decompress_lz4_into(memoryview(frame), memoryview(output)[:room])
    assert output[room:] == b"\xee" * 100


@given(contents, st.data())
def test_a_damaged_frame_is_refused_or_gives_something_within_the_room(
    content: bytes, data: st.DataObject
) -> None:
    frame = bytearray(lz4.compress(content, **independent))
    place = data.draw(st.integers(0, len(frame) - 1))
    frame[place] ^= data.draw(st.integers(1, 255))
    try:
        assert len(taken_apart(bytes(frame))) <= ROOM
    except cramjam.DecompressionError:
        pass


@given(contents.filter(len), st.data())
def test_a_frame_that_ends_too_early_never_gives_more_than_its_content(
    content: bytes, data: st.DataObject
) -> None:
    frame = lz4.compress(content, **independent)
    cut = frame[: data.draw(st.integers(0, len(frame) - 5))]
    try:
        found = taken_apart(cut)
    except cramjam.DecompressionError:
        return
    assert content.startswith(found)
