"""Request and response headers, for brokers and clients.

A request header has the API key, the version, the correlation id and the client id (header
v1). Flexible versions add tagged fields (v2, KIP-482), but keep the client id in the old string
format. A response header has the correlation id (v0), and flexible versions add tagged fields
(v1). ApiVersions responses always have header v0, because a client reads them before it knows
the broker's versions (KIP-511). Request header v0 (ControlledShutdown v0) is not supported: no
supported API uses it.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ottla.ports import Buffer
from ottla.wire.api_table import API_INFO, ApiKey
from ottla.wire.primitives import DecodeError, skip_tags

NO_BODY: Final = -1
_PREFIX: Final = Struct(">hhi")
_REQUEST_BYTES: Final = 10
_pack_request: Final = Struct(">hhih").pack
_unpack_request: Final = Struct(">hhih").unpack_from
_CORRELATION_ID: Final = Struct(">i")
_unpack_correlation_id: Final = _CORRELATION_ID.unpack_from
_FLEXIBLE_RESPONSE: Final = Struct(">ib")
# For one lookup per request: the lowest, the highest and the first flexible version.
_NEVER: Final = 0x7FFF
_VERSIONS: Final = {
    key: (
        info.min_version,
        info.max_version,
        _NEVER if info.first_flexible is None else info.first_flexible,
    )
    for key, info in API_INFO.items()
}
_NO_VERSIONS: Final = (0, -1, _NEVER)
_FIRST_FLEXIBLE_RESPONSE: Final = {key: first for key, (_, _, first) in _VERSIONS.items()}
_FIRST_FLEXIBLE_RESPONSE[ApiKey.API_VERSIONS.value] = _NEVER


class RequestHeader:
    """A request header. `body` is the position after it.

    If Ottla has no schema for the API or version, the client id and the body are unknown (None
    and NO_BODY). This is enough to respond with UNSUPPORTED_VERSION.
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
    """Return True if Ottla has a schema for this API and version."""
    lowest, highest, _ = _VERSIONS.get(api_key, _NO_VERSIONS)
    return lowest <= version <= highest


def decode_request_header(buffer: Buffer, start: int, end: int) -> RequestHeader:
    """Return the header of the request frame in [start, end). Raise DecodeError if invalid."""
    position = start + _REQUEST_BYTES
    if position > end:
        return _short_header(buffer, start, end)
    api_key, version, correlation_id, length = _unpack_request(buffer, start)
    header = RequestHeader(api_key, version, correlation_id, None, NO_BODY)
    lowest, highest, first_flexible = _VERSIONS.get(api_key, _NO_VERSIONS)
    if not lowest <= version <= highest:
        return header
    if length != -1:
        stop = position + length
        if length < 0 or stop > end:
            raise DecodeError(f"request header: client_id of length {length} is cut off")
        header.client_id = _text(buffer[position:stop])
        position = stop
    if version >= first_flexible:
        if position < end and buffer[position] == 0:
            position += 1
        else:
            position = skip_tags(buffer, position, end)
    header.body = position
    return header


def _short_header(buffer: Buffer, start: int, end: int) -> RequestHeader:
    """Return the header of a frame without a client id, if its API or version is not supported."""
    if start + _PREFIX.size > end:
        raise DecodeError(f"request of {end - start} bytes has no whole header")
    api_key, version, correlation_id = _PREFIX.unpack_from(buffer, start)
    if is_supported(api_key, version):
        raise DecodeError("request header: client_id is cut off")
    return RequestHeader(api_key, version, correlation_id, None, NO_BODY)


def _text(data: Buffer) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError("request header: client_id is not UTF-8") from error


def request_header(api_key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Return the header of a request, for a client."""
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    header = _pack_request(api_key, version, correlation_id, length) + name
    return header + b"\0" if version >= _VERSIONS[api_key][2] else header


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """Return the header of a response, for a broker."""
    if version >= _FIRST_FLEXIBLE_RESPONSE.get(api_key, _NEVER):
        return _FLEXIBLE_RESPONSE.pack(correlation_id, 0)
    return _CORRELATION_ID.pack(correlation_id)


def decode_response_header(
    api_key: int, version: int, buffer: Buffer, start: int, end: int
) -> tuple[int, int]:
    """Return the correlation id and the position of the body. Raise DecodeError if invalid."""
    position = start + 4
    if position > end:
        raise DecodeError(f"response of {end - start} bytes has no whole header")
    (correlation_id,) = _unpack_correlation_id(buffer, start)
    if version >= _FIRST_FLEXIBLE_RESPONSE.get(api_key, _NEVER):
        position = skip_tags(buffer, position, end)
    return correlation_id, position
