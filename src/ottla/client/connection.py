"""One blocking connection to a broker: frames, headers and version negotiation.

Requests may be pipelined: `send` several, then `receive` their responses in the same order.
The client uses the highest version of each API that both sides support (KIP-35). It asks for
the broker's versions once, when the connection opens, and sends its own name and version with
that request (KIP-511). Then it logs in, if the transport has SASL. If the broker limits the
lifetime of the session, the client logs in again before a request when most of that time has
passed and no response is pending (KIP-368).

Everything the broker sends is checked. A frame of an invalid size, a response to another
request, or bytes that cannot be decoded raise ProtocolViolation.
"""

from __future__ import annotations

import logging
import select
import time
from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import ottla
from ottla.client.address import Address
from ottla.client.deadline import Deadline
from ottla.client.errors import (
    AuthenticationFailed,
    ClientError,
    ConnectionLost,
    ProtocolViolation,
    TimedOut,
    Unreachable,
    Unsendable,
    UnsupportedByBroker,
    check,
)
from ottla.client.transport import PLAIN_TRANSPORT, Transport
from ottla.model.errors import ErrorCode
from ottla.ports import Buffer
from ottla.wire.apis import ApiKey
from ottla.wire.codec import DecodeError, EncodeError, decoder, part_encoder
from ottla.wire.header import decode_response_header, request_header
from ottla.wire.message import Message
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from ssl import SSLSocket

_log = logging.getLogger(__name__)
M = TypeVar("M", bound=Message)
MAX_RESPONSE_BYTES = 256 * 1024 * 1024
_SIZE = Struct(">i")
_LARGE_BYTES = 64 * 1024  # the parts of a request of this size are not joined
_MOST_PARTS = 1024  # of one system call
_TLS_ALERT = b"\x15\x03"
_RENEWED_AFTER = 0.8  # fraction of a session's lifetime


class _Pending(NamedTuple):
    correlation_id: int
    api_key: int
    version: int


class Connection:
    """An open connection. Close it after any exception except Refused and UnsupportedByBroker."""

    def __init__(
        self,
        address: Address,
        client_id: str,
        deadline: Deadline,
        transport: Transport = PLAIN_TRANSPORT,
    ) -> None:
        self.address = address
        self._client_id = client_id
        self._transport = transport
        self._correlation_id = 0
        self._pending: deque[_Pending] = deque()
        self._renew_at: float | None = None
        self._first_request_id = 0
        self._socket = transport.open(address, deadline)
        self._secured = cast("SSLSocket", self._socket) if transport.tls is not None else None
        try:
            self._versions = self._negotiate(deadline)
            self._log_in(deadline)
        except ConnectionLost as error:
            self._socket.close()
            raise Unreachable(f"{error}{self._hint()}") from None
        except BaseException:
            self._socket.close()
            raise
        self._first_request_id = self._correlation_id + 1

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    @property
    def holds_bytes(self) -> bool:
        """True if TLS holds bytes that `select` does not show on the socket."""
        return self._secured is not None and self._secured.pending() > 0

    @property
    def pending(self) -> int:
        """The number of requests whose responses have not been received."""
        return len(self._pending)

    def supports(self, request: type[Message]) -> bool:
        """Return True if the broker and this client have a common version of this API."""
        return self._common_version(request) is not None

    def version_of(self, request: type[Message], at_most: int | None = None) -> int:
        """Return the highest common version. Raise UnsupportedByBroker if there is none."""
        version = self._common_version(request, at_most)
        if version is None:
            name = ApiKey(request.API_KEY).name
            raise UnsupportedByBroker(
                f"the broker at {self.address} does not support a version of {name} that this"
                " client supports"
            )
        return version

    def send(
        self,
        request: Message,
        deadline: Deadline,
        *,
        at_most: int | None = None,
        answered: bool = True,
    ) -> None:
        """Send a request, in version `at_most` or lower if given.

        `answered` is false for Produce with acks=0, which has no response.
        """
        if self._renew_at is not None and not self._pending and time.monotonic() > self._renew_at:
            self._log_in(deadline)
        version = self.version_of(type(request), at_most)
        self._send(request, version, deadline)
        if not answered:
            self._pending.pop()

    def receive(self, response: type[M], deadline: Deadline) -> M:
        """Receive the response to the oldest pending request."""
        pending = self._pending.popleft()
        frame = self._read_frame(deadline)
        return self._decode(frame, pending, response)

    def receive_open(self, deadline: Deadline) -> OpenResponse:
        """Return the response to the oldest pending request, for the caller to read in pieces."""
        pending = self._pending.popleft()
        return OpenResponse(self, pending, self._read_size(deadline))

    def read_some(self, view: memoryview, deadline: Deadline) -> int:
        """Read the next bytes of the open response into `view`. Return how many: at least one."""
        try:
            self._socket.settimeout(deadline.remaining_s())
            received = self._socket.recv_into(view)
        except TimeoutError:
            raise self._timed_out(deadline) from None
        except OSError as error:
            raise self._lost(error) from None
        if received == 0:
            raise self._lost("the broker closed it")
        return received

    def _common_version(self, request: type[Message], at_most: int | None = None) -> int | None:
        lowest, highest = self._versions.get(request.API_KEY, (0, -1))
        version = min(highest, request.MAX_VERSION if at_most is None else at_most)
        return version if version >= max(lowest, request.MIN_VERSION) else None

    def _negotiate(self, deadline: Deadline) -> dict[int, tuple[int, int]]:
        # If a broker does not support our ApiVersions version, it responds in version 0 with an
        # error and, since Kafka 2.4, with the versions it supports.
        response = self._api_versions(ApiVersionsRequest.MAX_VERSION, deadline)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            ranges = {api.api_key: api.max_version for api in response.api_keys}
            response = self._api_versions(ranges.get(ApiKey.API_VERSIONS, 0), deadline)
        check(response.error_code, f"the broker at {self.address} did not return its API versions")
        return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def _api_versions(self, version: int, deadline: Deadline) -> ApiVersionsResponse:
        version = max(0, min(version, ApiVersionsRequest.MAX_VERSION))
        request = ApiVersionsRequest(
            client_software_name="ottla", client_software_version=ottla.__version__
        )
        self._send(request, version, deadline)
        pending = self._pending.popleft()
        frame = self._read_frame(deadline)
        if _answers_unsupported_version(frame):
            pending = pending._replace(version=0)
        return self._decode(frame, pending, ApiVersionsResponse)

    def _log_in(self, deadline: Deadline) -> None:
        if self._transport.sasl is None:
            return
        from ottla.client.security.sasl import authenticate

        self._renew_at = None

        def ask(request: Message, response: type[M]) -> M:
            self.send(request, deadline)
            return self.receive(response, deadline)

        lifetime_ms = authenticate(self._transport.sasl, self.address, ask)
        if lifetime_ms > 0:
            self._renew_at = time.monotonic() + _RENEWED_AFTER * lifetime_ms / 1000

    def _send(self, request: Message, version: int, deadline: Deadline) -> None:
        self._correlation_id += 1
        key = request.API_KEY
        header = request_header(key, version, self._correlation_id, self._client_id)
        try:
            parts = part_encoder(type(request), version)(request)
        except EncodeError as error:
            raise Unsendable(f"a value cannot be sent: {error}") from error
        self._pending.append(_Pending(self._correlation_id, key, version))
        size = len(header) + sum(map(len, parts))
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s <- %s v%d, %d bytes", self.address, ApiKey(key).name, version, size)
        self._write([_SIZE.pack(size), header, *parts], size, deadline)

    def _write(self, parts: list[Buffer], size: int, deadline: Deadline) -> None:
        try:
            if self._secured is not None:
                from ottla.client.security.tls import write_all

                write_all(self._secured, b"".join(parts), deadline)
                return
            self._socket.settimeout(deadline.remaining_s())
            if size < _LARGE_BYTES:
                self._socket.sendall(b"".join(parts))
            else:
                self._write_parts(parts, deadline)
        except TimeoutError:
            raise self._timed_out(deadline) from None
        except OSError as error:
            raise self._lost(error) from None

    def _write_parts(self, parts: list[Buffer], deadline: Deadline) -> None:
        """Send the parts of a large request without joining them."""
        first = 0
        while first < len(parts):
            sent = self._socket.sendmsg(parts[first : first + _MOST_PARTS])
            while first < len(parts) and sent >= len(parts[first]):
                sent -= len(parts[first])
                first += 1
            if sent:
                parts[first] = memoryview(parts[first])[sent:]
                self._socket.settimeout(deadline.remaining_s())

    def _read_frame(self, deadline: Deadline) -> memoryview:
        view = memoryview(bytearray(self._read_size(deadline)))
        self._fill(view, deadline)
        return view

    def _read_size(self, deadline: Deadline) -> int:
        prefix = bytearray(_SIZE.size)
        self._fill(memoryview(prefix), deadline)
        (size,) = _SIZE.unpack(prefix)
        _log.debug("%s -> %d bytes", self.address, size)
        if not _SIZE.size <= size <= MAX_RESPONSE_BYTES:
            raise ProtocolViolation(_not_kafka(self.address, bytes(prefix)))
        return int(size)

    def _fill(self, view: memoryview, deadline: Deadline) -> None:
        position, size = 0, len(view)
        while position < size:
            position += self.read_some(view[position:], deadline)

    def _decode(self, frame: memoryview, pending: _Pending, response: type[M]) -> M:
        try:
            start = _body(self.address, pending, frame, len(frame))
            return decoder(response, pending.version)(frame, start, len(frame))[0]
        except DecodeError as error:
            raise _not_understood(self.address, pending, error) from None

    def _timed_out(self, deadline: Deadline) -> TimedOut:
        return TimedOut(
            f"{self.address} did not answer: {deadline.purpose} took longer than"
            f" {deadline.timeout_ms / 1000:g} s"
        )

    def _lost(self, reason: OSError | str) -> ClientError:
        if isinstance(reason, OSError):
            if self._secured is not None:
                from ottla.client.security.tls import alert_words

                if words := alert_words(reason, self.address):
                    return AuthenticationFailed(words)
            reason = reason.strerror or str(reason)
        hint = self._hint() if self._correlation_id == self._first_request_id else ""
        return ConnectionLost(f"the connection to {self.address} broke: {reason}{hint}")

    def _hint(self) -> str:
        """Return the most likely reason why a broker closes the connection on the first request."""
        if self._transport.sasl is not None:
            return ""
        if self._secured is not None:
            return " (does this listener need a client certificate, or security.protocol=SASL_SSL?)"
        return " (if this listener needs TLS or SASL, set security.protocol)"


class OpenResponse:
    """A response that is read in pieces. Read it to its end before receiving another one."""

    def __init__(self, connection: Connection, pending: _Pending, size: int) -> None:
        self.version = pending.version
        self.left = size
        self._connection = connection
        self._pending = pending

    def read_some(self, view: memoryview, deadline: Deadline) -> int:
        """Read the next bytes into `view`. Return how many: at least one, at most `left`."""
        size = self._connection.read_some(view[: self.left], deadline)
        self.left -= size
        return size

    def body(self, buffer: Buffer, end: int) -> int:
        """Return where the body starts in `buffer`. Raise DecodeError if the header is cut off."""
        return _body(self._connection.address, self._pending, buffer, end)

    def not_understood(self, error: DecodeError) -> ProtocolViolation:
        """Return the error for a response that cannot be decoded."""
        return _not_understood(self._connection.address, self._pending, error)


def _body(address: Address, pending: _Pending, buffer: Buffer, end: int) -> int:
    correlation_id, start = decode_response_header(pending.api_key, pending.version, buffer, 0, end)
    if correlation_id != pending.correlation_id:
        raise ProtocolViolation(
            f"{address} answered request {correlation_id} instead of {pending.correlation_id}"
        )
    return start


def _not_understood(address: Address, pending: _Pending, error: DecodeError) -> ProtocolViolation:
    return ProtocolViolation(
        f"{address} sent a response to {ApiKey(pending.api_key).name} v{pending.version} that"
        f" cannot be decoded: {error}"
    )


def ready(connections: Sequence[Connection], timeout_s: float) -> list[Connection]:
    """Return the connections that have bytes to read. Wait for one up to `timeout_s`."""
    held = [connection for connection in connections if connection.holds_bytes]
    return held or select.select(connections, [], [], timeout_s)[0]


def _answers_unsupported_version(frame: memoryview) -> bool:
    # Such a response is in version 0: the correlation id, then the error code.
    return len(frame) >= 6 and frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


def _not_kafka(address: Address, prefix: bytes) -> str:
    if prefix.startswith(_TLS_ALERT):
        return f"{address} uses TLS: set security.protocol to SSL or SASL_SSL"
    return f"{address} does not use Kafka's protocol: check the port"
