"""The hand-written OffsetCommit codec against the generated one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.codecs.offset_commit import CommitRequest, decode_commit, encode_commit_response
from ottla.wire.codec import decoder, encoder
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.primitives import DecodeError

VERSIONS = (8, 9)
int32 = st.integers(-(2**31), 2**31 - 1)
names = st.text(max_size=200)
requests = st.builds(
    OffsetCommitRequest,
    group_id=names,
    generation_id_or_member_epoch=int32,
    member_id=names,
    group_instance_id=st.none() | names,
    topics=st.lists(
        st.builds(
            OffsetCommitRequestTopic,
            name=names,
            partitions=st.lists(
                st.builds(
                    OffsetCommitRequestPartition,
                    partition_index=int32,
                    committed_offset=st.integers(-(2**63), 2**63 - 1),
                    committed_leader_epoch=int32,
                    committed_metadata=st.none() | names,
                ),
                max_size=4,
            ),
        ),
        max_size=3,
    ),
)


def decode(body: bytes, before: bytes = b"", after: bytes = b"") -> CommitRequest:
    buffer = bytearray(before + body + after)
    return decode_commit(9, buffer, memoryview(buffer), len(before), len(before) + len(body))


@given(requests, st.sampled_from(VERSIONS), st.binary(max_size=9), st.binary(max_size=9))
def test_it_reads_what_the_generated_codec_writes(
    request: OffsetCommitRequest, version: int, before: bytes, after: bytes
) -> None:
    body = encoder(OffsetCommitRequest, version)(request)
    group_id, generation_id, member_id, instance_id, _, topics = decode(body, before, after)
    assert group_id == request.group_id
    assert generation_id == request.generation_id_or_member_epoch
    assert member_id == request.member_id
    assert instance_id == request.group_instance_id
    assert topics == [
        (
            topic.name,
            [
                (
                    p.partition_index,
                    p.committed_offset,
                    p.committed_leader_epoch,
                    p.committed_metadata or "",
                )
                for p in topic.partitions
            ],
        )
        for topic in request.topics
    ]


@given(requests, st.sampled_from(VERSIONS), st.data())
def test_a_cut_request_is_refused_whatever_follows_it(
    request: OffsetCommitRequest, version: int, data: st.DataObject
) -> None:
    body = encoder(OffsetCommitRequest, version)(request)
    length = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(DecodeError):
        decode(body[:length], after=data.draw(st.sampled_from((b"", body[length:], bytes(500)))))


@given(requests, st.sampled_from(VERSIONS), st.data())
def test_damage_is_refused_where_the_generated_codec_refuses_it(
    request: OffsetCommitRequest, version: int, data: st.DataObject
) -> None:
    body = bytearray(encoder(OffsetCommitRequest, version)(request))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        ours = decode(bytes(body))
    except DecodeError:
        ours = None
    try:
        theirs = decoder(OffsetCommitRequest, version)(bytes(body), 0, len(body))[0]
    except DecodeError:
        theirs = None
    assert (ours is None) == (theirs is None)


def test_tagged_fields_are_skipped() -> None:
    tags = b"\1\5\3abc"
    partition = bytes(16) + b"\1" + tags
    body = b"\2g" + bytes(4) + b"\2m\0" + b"\2" + b"\2t" + b"\2" + partition + tags + tags
    assert decode(body) == ("g", 0, "m", None, -1, [("t", [(0, 0, 0, "")])])


def test_hostile_lengths_are_refused_before_anything_is_made() -> None:
    huge = b"\xff\xff\xff\xff\x0f"
    for body in (
        huge,
        b"\2g" + bytes(4) + b"\2m\0" + huge,
        b"\2g" + bytes(4) + b"\2m\0\2\2t" + huge,
        b"\2g" + bytes(4) + b"\2m\0\2" + huge,
        b"\0" + bytes(20),
        b"\2g" + bytes(4) + b"\2m\0\0",
        b"\2\xff" + bytes(4) + b"\2m\0\1\0",
    ):
        with pytest.raises(DecodeError):
            decode(body, after=bytes(100))


@given(
    st.lists(
        st.tuples(names, st.lists(st.tuples(int32, st.integers(-1, 130)), max_size=3)), max_size=3
    ),
    st.integers(0, 2**31 - 1),
    st.sampled_from(VERSIONS),
)
def test_it_writes_what_the_generated_codec_reads(
    topics: list[tuple[str, list[tuple[int, int]]]], correlation_id: int, version: int
) -> None:
    frame = encode_commit_response(
        correlation_id, [name for name, _ in topics], [codes for _, codes in topics]
    )
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == correlation_id
    assert frame[8] == 0
    response, end = decoder(OffsetCommitResponse, version)(frame, 9, len(frame))
    assert end == len(frame)
    assert [
        (topic.name, [(p.partition_index, p.error_code) for p in topic.partitions])
        for topic in response.topics
    ] == topics
