"""The codecs of small messages with known bytes."""

from __future__ import annotations

import pytest

from ottla.model.ids import ZERO_UUID
from ottla.wire.codec import (
    DecodeError,
    EncodeError,
    decoder,
    encoder,
    head_decoder,
    part_encoder,
)
from ottla.wire.message import Field, Items, Message, as_list


class Inner(Message):
    __slots__ = ("label", "number")
    FIELDS = (
        Field("number", "int16", (0, 3)),
        Field("label", "string", (1, 3), nullable=(2, 3)),
    )

    def __init__(self, *, number: int = 0, label: str | None = "") -> None:
        self.number = number
        self.label = label


class Sample(Message):
    """v0 and v1 are not flexible; v2 has a nullable struct, v3 tagged fields."""

    __slots__ = ("data", "id", "inner", "items", "leader", "maybe", "numbers", "since", "tags")
    API_KEY = 7
    MIN_VERSION = 0
    MAX_VERSION = 3
    FIRST_FLEXIBLE_VERSION = 2
    FIELDS = (
        Field("numbers", "array", (0, 3), of="int32", nullable=(1, 3)),
        Field("items", "array", (0, 3), of=Inner),
        Field("data", "bytes", (1, 3), nullable=(3, 3)),
        Field("id", "uuid", (1, 3)),
        Field("inner", "struct", (1, 3), of=Inner),
        Field("maybe", "struct", (2, 3), of=Inner, nullable=(2, 3)),
        Field("leader", "struct", (3, 3), of=Inner, tag=1),
        Field("since", "int64", (3, 3), tag=0),
        Field("tags", "array", (3, 3), of="string", tag=4),
    )

    def __init__(
        self,
        *,
        numbers: Items[int] | None = (),
        items: Items[Inner] = (),
        data: bytes | None = b"",
        id: bytes = ZERO_UUID,
        inner: Inner | None = None,
        maybe: Inner | None = None,
        leader: Inner | None = None,
        since: int = -1,
        tags: Items[str] = (),
    ) -> None:
        self.numbers = None if numbers is None else as_list(numbers)
        self.items = as_list(items)
        self.data = data
        self.id = id
        self.inner = Inner() if inner is None else inner
        self.maybe = maybe
        self.leader = Inner() if leader is None else leader
        self.since = since
        self.tags = as_list(tags)


ID = bytes(range(16))
V0 = b"\0\0\0\2\0\0\0\5\xff\xff\xff\xff\0\0\0\1\0\7"
V1 = V0[:-6] + b"\0\0\0\1\0\7\0\2hi\0\0\0\3abc" + ID + b"\0\1\0\0"
V2 = b"\3\0\0\0\5\xff\xff\xff\xff\2\0\7\3hi\0\4abc" + ID + b"\0\1\1\0\xff\0"


def sample(**more: object) -> Sample:
    made = Sample(numbers=[5, -1], items=[Inner(number=7, label="hi")], data=b"abc", id=ID)
    made.inner = Inner(number=1)
    for name, value in more.items():
        setattr(made, name, value)
    return made


def decode(version: int, data: bytes) -> Sample:
    message, position = decoder(Sample, version)(data, 0, len(data))
    assert position == len(data)
    return message


@pytest.mark.parametrize(("version", "data"), [(0, V0), (1, V1), (2, V2)])
def test_known_bytes(version: int, data: bytes) -> None:
    assert encoder(Sample, version)(sample()) == data


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_parts_are_the_same_bytes(version: int) -> None:
    message = sample(tags=["x"]) if version == 3 else sample()
    assert b"".join(part_encoder(Sample, version)(message)) == encoder(Sample, version)(message)


def test_a_field_the_version_does_not_have_keeps_its_default() -> None:
    assert decode(0, V0) == Sample(numbers=[5, -1], items=[Inner(number=7)])
    assert decode(1, V1) == sample()


def test_defaults_are_not_shared_between_messages() -> None:
    first, second = decode(0, V0), decode(0, V0)
    first.tags.append("changed")
    first.inner.number = 99
    assert second == Sample(numbers=[5, -1], items=[Inner(number=7)])


def test_tagged_fields_with_their_default_are_left_out() -> None:
    assert encoder(Sample, 3)(sample()) == V2


def test_tagged_fields_are_written_in_the_order_of_their_tags() -> None:
    message = sample(leader=Inner(number=2), since=3, tags=["x"])
    data = encoder(Sample, 3)(message)
    assert data == V2[:-1] + b"\3\0\10\0\0\0\0\0\0\0\3\1\4\0\2\1\0\4\3\2\2x"
    assert decode(3, data) == message


def test_unknown_tagged_fields_are_skipped() -> None:
    for version in (2, 3):
        assert decode(version, V2[:-1] + b"\2\5\3abc\xac\2\0") == sample()


def test_a_tagged_field_must_fill_its_size() -> None:
    with pytest.raises(DecodeError, match="Sample v3: leader is shorter than its size"):
        decode(3, V2[:-1] + b"\1\1\5\0\2\1\0\0")
    with pytest.raises(DecodeError, match=r"Sample v3: leader\S* .*cut off"):
        decode(3, V2[:-1] + b"\1\1\2\0\2\1\0")


def test_nullable_struct() -> None:
    message = sample(maybe=Inner(number=4, label=None))
    data = encoder(Sample, 2)(message)
    assert data == V2[:-2] + b"\1\0\4\0\0\0"
    assert decode(2, data) == message


def test_null_only_where_the_version_allows_it() -> None:
    assert decode(1, b"\xff\xff\xff\xff" + V1[12:]).numbers is None
    with pytest.raises(DecodeError, match="Sample v0: numbers is null"):
        decode(0, b"\xff\xff\xff\xff" + V0[12:])
    with pytest.raises(DecodeError, match="Sample v2: numbers of length"):
        decode(2, b"\x7f")
    with pytest.raises(DecodeError, match="Sample v2: items is null"):
        decode(2, b"\1\0")
    with pytest.raises(EncodeError, match="Sample v0: numbers: "):
        encoder(Sample, 0)(Sample(numbers=None))
    with pytest.raises(EncodeError, match=r"Sample v1: items\.label: "):
        encoder(Sample, 1)(Sample(items=[Inner(label=None)]))


@pytest.mark.parametrize(
    ("version", "data", "reason"),
    [
        (0, b"\xff\xff\xff\xfe", "numbers has length -2"),
        (0, b"\x7f\xff\xff\xff", "numbers of length 2147483647 is cut off"),
        (0, b"\0\0\0\0\0\0\0\2\0\0", "items of 2 elements is cut off"),
        (0, b"\0\0\0\0\xff\xff\xff\0", "items has length -256"),
        (1, b"\0\0\0\0\0\0\0\1\0\0\0\1\xff", r"items\.label is not UTF-8"),
        (1, b"\0\0\0\0\0\0\0\1\0\0\xff\xff", r"items\.label is null"),
        (1, b"\0\0\0\0\0\0\0\1\0\0\xff\xf0", r"items\.label has length -16"),
        (2, b"\xff\xff\xff\xff\x0f", "numbers of length 4294967294 is cut off"),
        (2, b"\xff\xff\xff\xff\x1f", "numbers varint has more than 32 bits"),
        (2, b"\x80\x80\x80\x80\x80\0", "numbers varint has more than 32 bits"),
        (2, b"\1\xff", "items varint is cut off"),
        (2, V2[:-1], "is cut off"),
        (2, V2[:-1] + b"\1\0\5abc", "tagged field of 5 bytes is cut off"),
        (3, V2[:-1] + b"\1\7\5abc", "tagged field 7 is cut off"),
    ],
)
def test_what_is_wrong_is_said_with_the_field(version: int, data: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=f"^Sample v{version}: {reason}"):
        decoder(Sample, version)(data, 0, len(data))


def test_bytes_after_the_body_and_before_it_are_left_alone() -> None:
    buffer = bytearray(b"before" + V1 + b"after")
    message, position = decoder(Sample, 1)(memoryview(buffer), 6, len(buffer))
    assert (message, position) == (sample(), 6 + len(V1))


def test_decoded_bytes_do_not_change_with_the_buffer() -> None:
    buffer = bytearray(V1)
    message, _ = decoder(Sample, 1)(buffer, 0, len(buffer))
    buffer[:] = bytes(len(buffer))
    assert message == sample()
    assert type(message.data) is bytes


@pytest.mark.parametrize("version", range(4))
def test_the_head_of_a_message_ends_at_the_length_of_a_field(version: int) -> None:
    items = [Inner(number=7)] * 200
    data = encoder(Sample, version)(Sample(numbers=[1, 2, 3], items=items))
    head, count, position = head_decoder(Sample, version, Sample, "items")(data, 0, len(data))
    assert head == Sample(numbers=[1, 2, 3])
    assert count == 200
    item, label, _ = head_decoder(Sample, version, Inner, "label")(data, position, len(data))
    assert (item.number, label if version else 0) == (7, 0)
    with pytest.raises(DecodeError, match=r"items .*is cut off"):
        head_decoder(Sample, version, Sample, "items")(data, 0, position - 1)


def test_a_null_field_has_a_head_too() -> None:
    for version, data in ((1, b"\xff\xff\xff\xff"), (3, b"\0")):
        assert head_decoder(Sample, version, Sample, "numbers")(data, 0, len(data))[1] == -1
    with pytest.raises(DecodeError, match="numbers has length -2"):
        head_decoder(Sample, 1, Sample, "numbers")(b"\xff\xff\xff\xfe", 0, 4)


def test_the_end_must_be_inside_the_buffer() -> None:
    with pytest.raises(DecodeError, match="past its buffer"):
        decoder(Sample, 0)(V0, 0, len(V0) + 1)


def test_a_null_length_just_past_the_end_is_not_taken() -> None:
    class Tail(Message):
        __slots__ = ("text",)
        MAX_VERSION = 0
        FIELDS = (Field("text", "string", (0, 0), nullable=(0, 0)),)

        def __init__(self, *, text: str | None = None) -> None:
            self.text = text

    assert decoder(Tail, 0)(b"\xff\xff", 0, 2) == (Tail(), 2)
    with pytest.raises(DecodeError, match="text is cut off"):
        decoder(Tail, 0)(b"\xff\xff", 0, 1)


def test_values_a_field_cannot_carry_are_named() -> None:
    with pytest.raises(EncodeError, match=r"Sample v1: items\.number to items\.label: "):
        encoder(Sample, 1)(Sample(items=[Inner(number=1 << 15)]))
    with pytest.raises(EncodeError, match=r"items\.number to items\.label: .*32767"):
        encoder(Sample, 1)(Sample(items=[Inner(label="x" * (1 << 15))]))
    with pytest.raises(EncodeError, match=r"Sample v0: items\.number: "):
        encoder(Sample, 0)(Sample(items=[Inner(number=1 << 15)]))


def test_a_long_array_and_string_have_longer_varints() -> None:
    message = sample(numbers=list(range(300)), data=b"d" * 20000, tags=["t" * 127] * 128)
    assert decode(3, encoder(Sample, 3)(message)) == message


def test_versions_a_message_does_not_have() -> None:
    for version in (-1, 4):
        with pytest.raises(ValueError, match=f"Sample has no version {version}"):
            decoder(Sample, version)
        with pytest.raises(ValueError, match=f"Sample has no version {version}"):
            encoder(Sample, version)
    with pytest.raises(ValueError, match="Inner has no version 0"):
        encoder(Inner, 0)


def test_codecs_are_made_once() -> None:
    assert decoder(Sample, 1) is decoder(Sample, 1)
    assert encoder(Sample, 1) is encoder(Sample, 1)
