"""Request and response headers, both ends of them.

A request starts with key, version, correlation id and client id (header v1); flexible
versions add tagged fields (v2, KIP-482), yet keep the client id in the old string form.
A response starts with the correlation id (v0), flexible ones add tagged fields (v1), except
ApiVersions, whose response a client must read before it knows what the broker speaks (KIP-511).
Header v0 (ControlledShutdown v0) is not read: no supported API has it.
"""

from __future__ import annotations

from struct import Struct

from ottla.ports import Buffer
from ottla.wire.api_table import API_INFO, ApiKey
from ottla.wire.primitives import DecodeError, skip_tags

NO_BODY = -1
_PREFIX = Struct(">hhi")
_REQUEST = Struct(">hhih")
_CORRELATION_ID = Struct(">i")
_FLEXIBLE_RESPONSE = Struct(">ib")
# One lookup per request: from which version on headers have tagged fields.
_NEVER = 0x7FFF
_FIRST_FLEXIBLE = {
    key: _NEVER if info.first_flexible is None else info.first_flexible
    for key, info in API_INFO.items()
}
_FIRST_FLEXIBLE_RESPONSE = {**_FIRST_FLEXIBLE, int(ApiKey.API_VERSIONS): _NEVER}


class RequestHeader:
    """Who asks for what. `body` is the position after the header.

    For an API or version that Ottla has no schema of, client id and body are unknown
    (None and NO_BODY): enough to answer UNSUPPORTED_VERSION.
    """

    __slots__ = ("api_key", "api_version", "body", "client_id", "correlation_id")

    def __init__(
        self, api_key: int, api_version: int, correlation_id: int, client_id: str | None, body: int
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body

    def __repr__(self) -> str:
        return (
            f"RequestHeader(api_key={self.api_key}, api_version={self.api_version}, "
            f"correlation_id={self.correlation_id}, client_id={self.client_id!r}, body={self.body})"
        )


def is_supported(api_key: int, version: int) -> bool:
    """Whether there is a schema for this version of this API."""
    info = API_INFO.get(api_key)
    return info is not None and info.min_version <= version <= info.max_version


def decode_request_header(buffer: Buffer, start: int, end: int) -> RequestHeader:
    """The header of the request frame in [start, end); DecodeError when it is not one."""
    if start + _PREFIX.size > end:
        raise DecodeError(f"request of {end - start} bytes has no whole header")
    api_key, version, correlation_id = _PREFIX.unpack_from(buffer, start)
    if not is_supported(api_key, version):
        return RequestHeader(api_key, version, correlation_id, None, NO_BODY)
    if start + _REQUEST.size > end:
        raise DecodeError("request header: client_id is cut off")
    client_id, position = _client_id(buffer, start + _PREFIX.size, end)
    if version >= _FIRST_FLEXIBLE[api_key]:
        if position < end and buffer[position] == 0:
            position += 1
        else:
            position = skip_tags(buffer, position, end)
    return RequestHeader(api_key, version, correlation_id, client_id, position)


def _client_id(buffer: Buffer, position: int, end: int) -> tuple[str | None, int]:
    length = (buffer[position] << 8) | buffer[position + 1]
    position += 2
    if length == 0xFFFF:
        return None, position
    if length > 0x7FFF or position + length > end:
        raise DecodeError(f"request header: client_id of {length} bytes is cut off")
    try:
        return str(buffer[position : position + length], "utf-8"), position + length
    except UnicodeDecodeError as error:
        raise DecodeError("request header: client_id is not UTF-8") from error


def request_header(api_key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The header a client puts before the body of a request."""
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    header = _REQUEST.pack(api_key, version, correlation_id, length) + name
    return header + b"\0" if version >= _FIRST_FLEXIBLE[api_key] else header


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """The header a broker puts before the body of a response."""
    if version >= _FIRST_FLEXIBLE_RESPONSE.get(api_key, _NEVER):
        return _FLEXIBLE_RESPONSE.pack(correlation_id, 0)
    return _CORRELATION_ID.pack(correlation_id)


def decode_response_header(
    api_key: int, version: int, buffer: Buffer, start: int, end: int
) -> tuple[int, int]:
    """(correlation id, position of the body) of a response; DecodeError when it is not one."""
    position = start + _CORRELATION_ID.size
    if position > end:
        raise DecodeError(f"response of {end - start} bytes has no whole header")
    (correlation_id,) = _CORRELATION_ID.unpack_from(buffer, start)
    if version >= _FIRST_FLEXIBLE_RESPONSE.get(api_key, _NEVER):
        position = skip_tags(buffer, position, end)
    return correlation_id, position
