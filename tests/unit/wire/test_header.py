"""Request and response headers with known bytes."""

from __future__ import annotations

import pytest

from ottla.wire.apis import ApiKey
from ottla.wire.header import (
    NO_BODY,
    RequestHeader,
    decode_request_header,
    decode_response_header,
    is_supported,
    request_header,
    response_header,
)
from ottla.wire.primitives import DecodeError


def parts(header: RequestHeader) -> tuple[int, int, int, str | None, int]:
    return (
        header.api_key,
        header.api_version,
        header.correlation_id,
        header.client_id,
        header.body,
    )


def test_version_1() -> None:
    frame = b"xx" + b"\0\3\0\1\0\0\0\7\0\2me" + b"body"
    header = decode_request_header(bytearray(frame), 2, len(frame))
    assert parts(header) == (3, 1, 7, "me", 14)


def test_version_2_has_tagged_fields_and_the_old_client_id() -> None:
    plain = b"\0\3\0\x0c\0\0\0\7\0\2me" + b"\0"
    assert parts(decode_request_header(plain, 0, len(plain))) == (3, 12, 7, "me", 13)
    tagged = plain[:-1] + b"\1\5\3abc"
    assert parts(decode_request_header(memoryview(tagged), 0, len(tagged))) == (3, 12, 7, "me", 18)


def test_no_client_id() -> None:
    frame = b"\0\3\0\1\0\0\0\7\xff\xff"
    assert parts(decode_request_header(frame, 0, len(frame))) == (3, 1, 7, None, 10)


@pytest.mark.parametrize(("api_key", "version"), [(18, 99), (18, -1), (999, 0), (5, 3), (-3, 1)])
def test_what_is_not_supported_still_says_what_it_is(api_key: int, version: int) -> None:
    frame = api_key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
    frame += b"\0\0\0\7" + b"whatever"
    header = decode_request_header(frame, 0, len(frame))
    assert parts(header) == (api_key, version, 7, None, NO_BODY)
    assert not is_supported(api_key, version)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\3\0\1\0\0\0",
        b"\0\3\0\1\0\0\0\7\0",
        b"\0\3\0\1\0\0\0\7\0\3me",
        b"\0\3\0\1\0\0\0\7\xff\xfe",
        b"\0\3\0\1\0\0\0\7\0\1\xff",
        b"\0\3\0\x0c\0\0\0\7\0\2me",
        b"\0\3\0\x0c\0\0\0\7\0\2me\1\0\4abc",
    ],
)
def test_a_broken_header_is_refused_and_the_next_frame_not_read(frame: bytes) -> None:
    for buffer in (frame, frame + bytes(20)):
        with pytest.raises(DecodeError):
            decode_request_header(buffer, 0, len(frame))


def test_response_headers() -> None:
    assert response_header(ApiKey.METADATA, 8, 7) == b"\0\0\0\7"
    assert response_header(ApiKey.METADATA, 9, 7) == b"\0\0\0\7\0"
    assert response_header(ApiKey.API_VERSIONS, 4, 7) == b"\0\0\0\7"


@pytest.mark.parametrize("version", [0, 9, 13])
@pytest.mark.parametrize("client_id", [None, "", "größe"])
def test_what_a_client_writes_a_broker_reads(version: int, client_id: str | None) -> None:
    frame = request_header(ApiKey.METADATA, version, -5, client_id)
    header = decode_request_header(frame, 0, len(frame))
    assert parts(header) == (3, version, -5, client_id, len(frame))
    answer = response_header(ApiKey.METADATA, version, -5) + b"body"
    decoded = decode_response_header(ApiKey.METADATA, version, answer, 0, len(answer))
    assert decoded == (-5, len(answer) - 4)


def test_a_broken_response_header_is_refused() -> None:
    for frame in (b"\0\0\0", b"\0\0\0\7", b"\0\0\0\7\1"):
        with pytest.raises(DecodeError):
            decode_response_header(ApiKey.METADATA, 9, frame + bytes(8), 0, len(frame))
