"""The first stages of a request: header and decoding. What is no request ends the connection."""

from __future__ import annotations

from struct import pack

import pytest

from ottla.model.errors import ErrorCode
from ottla.wire.api_table import ApiKey
from ottla.wire.codec import decoder, encoder
from ottla.wire.messages.api_versions import ApiVersionsResponse
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.primitives import DecodeError
from tests.support.broker import Broker, produce

UNKNOWN_API = 9999
NEW_VERSION = 99
AFTER = [b"", b"\xff" * 40, b"\0" * 40, b"\1" * 40]
"""What may follow a frame in the buffer that it was received into."""


def handle(broker: Broker, content: bytes, *, before: bytes = b"", after: bytes = b"") -> bytes:
    """Let a node handle a frame that lies between other bytes; return what may be sent."""
    client = broker.connect()
    buffer = bytearray(before + content + after)
    start, end = len(before), len(before) + len(content)
    broker.node.handle(client.connection, buffer, memoryview(buffer), start, end)
    broker.node.settle()
    return b"".join(part for part in client.connection.out if isinstance(part, bytes))


def header(key: int, version: int, client_id: bytes | None = b"c") -> bytes:
    length = -1 if client_id is None else len(client_id)
    return pack(">hhih", key, version, 7, length) + (client_id or b"")


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (b"", "too short"),
        (b"\0\3\0\1\0\0\0", "too short"),
        (header(UNKNOWN_API, 0), "not served"),
        (header(ApiKey.METADATA, NEW_VERSION), "not served"),
        (header(ApiKey.METADATA, -1), "not served"),
        (header(ApiKey.METADATA, 1)[:8], "cut off"),
        (pack(">hhih", ApiKey.METADATA, 1, 7, 5) + b"c", "past the end"),
        (pack(">hhih", ApiKey.METADATA, 1, 7, -2), "length -2"),
        (header(ApiKey.METADATA, 1, b"\xff"), "not UTF-8"),
    ],
)
@pytest.mark.parametrize("after", AFTER)
def test_what_is_no_request_is_refused(
    broker: Broker, frame: bytes, message: str, after: bytes
) -> None:
    with pytest.raises(DecodeError, match=message):
        handle(broker, frame, before=b"before", after=after)


@pytest.mark.parametrize(
    "frame",
    [
        header(ApiKey.METADATA, 1),
        header(ApiKey.PRODUCE, 3),
        header(ApiKey.PRODUCE, 3) + b"\xff\xff",
        header(ApiKey.PRODUCE, 9),
        header(ApiKey.PRODUCE, 9) + b"\0\0",
        header(ApiKey.PRODUCE, 9) + b"\0\x05",
        header(ApiKey.PRODUCE, 9) + b"\0\0\0\1\0\0\0\x09",
        header(ApiKey.PRODUCE, 13) + b"\0\0",
        header(ApiKey.FETCH, 4),
        header(ApiKey.FETCH, 4) + bytes(17),
        header(ApiKey.FETCH, 7) + bytes(29),
        header(ApiKey.FETCH, 12),
        header(ApiKey.FETCH, 12) + bytes(26),
        header(ApiKey.FETCH, 15) + bytes(22),
        header(ApiKey.OFFSET_COMMIT, 8) + b"\0\x02",
    ],
)
@pytest.mark.parametrize("after", AFTER)
def test_a_request_that_ends_too_early_takes_nothing_from_what_follows(
    broker: Broker, frame: bytes, after: bytes
) -> None:
    with pytest.raises(DecodeError):
        handle(broker, frame, before=b"before", after=after)


@pytest.mark.parametrize("client_id", [b"", None, b"a client", "ø".encode()])
def test_any_client_id_is_taken(broker: Broker, client_id: bytes | None) -> None:
    broker.topic()
    for request, version in ((MetadataRequest(topics=None), 1), (produce(), 8)):
        body = encoder(type(request), version)(request)
        assert handle(broker, header(request.API_KEY, version, client_id) + body)


def test_tagged_fields_of_the_header_are_skipped(broker: Broker) -> None:
    request = MetadataRequest(topics=None)
    tags = b"\x01\x05\x02ab"  # one field, tag 5, two bytes
    body = encoder(MetadataRequest, 9)(request)
    assert handle(broker, header(ApiKey.METADATA, 9) + tags + body)


@pytest.mark.parametrize("rest", [b"", b"\0\1c", b"\0\1c\0garbage"])
def test_an_api_versions_that_is_too_new_is_told_what_there_is(broker: Broker, rest: bytes) -> None:
    reply = handle(broker, pack(">hhi", ApiKey.API_VERSIONS, NEW_VERSION, 7) + rest)
    assert reply[4:8] == pack(">i", 7)
    response, end = decoder(ApiVersionsResponse, 0)(reply, 8, len(reply))
    assert end == len(reply)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert response.api_keys
