"""A client that sends any bytes in any version and tells how a broker reacted."""

from __future__ import annotations

import socket
from struct import Struct
from typing import TypeAlias

from compare.case import Raw, Request
from ottla.wire.apis import ApiKey, response_class
from ottla.wire.codec import DecodeError, decoder, encoder
from ottla.wire.header import decode_response_header, request_header
from ottla.wire.message import Message

CLIENT_ID = "compare"
TIMEOUT_S = 5.0
CLOSED = "the connection was closed"
_SIZE = Struct(">i")

Answer: TypeAlias = Message | str


class Client:
    """One connection to a broker, opened again after the broker has closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None
        self._correlation_id = 0

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, request: Request, version: int, *, answered: bool = True) -> Answer:
        """Return the response, or a text that says why there is none."""
        key = request.api_key if isinstance(request, Raw) else request.API_KEY
        self._send(request, key, version)
        if not answered:
            return ""
        try:
            frame = self._frame()
        except (ConnectionError, EOFError):
            self.close()
            return CLOSED
        except TimeoutError:
            self.close()
            return f"no response within {TIMEOUT_S:g} s"
        return _decode(frame, key, version)

    def get(self, request: Message, version: int) -> Message:
        """Return the response, or raise ConnectionError."""
        answer = self.ask(request, version)
        if isinstance(answer, str):
            raise ConnectionError(answer)
        return answer

    def _send(self, request: Request, key: int, version: int) -> None:
        self._correlation_id += 1
        body = (
            request.body if isinstance(request, Raw) else encoder(type(request), version)(request)
        )
        header = request_header(key, version, self._correlation_id, CLIENT_ID)
        frame = b"".join((_SIZE.pack(len(header) + len(body)), header, body))
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), TIMEOUT_S)
        self._socket.sendall(frame)

    def _frame(self) -> bytes:
        (size,) = _SIZE.unpack(self._read(_SIZE.size))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        assert self._socket is not None
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return bytes(data)


def _decode(frame: bytes, key: int, version: int) -> Answer:
    try:
        if key == ApiKey.API_VERSIONS and frame[4:6] == b"\x00\x23":
            version = 0  # UNSUPPORTED_VERSION comes in version 0
        _, start = decode_response_header(key, version, frame, 0, len(frame))
        response, end = decoder(response_class(key), version)(frame, start, len(frame))
    except DecodeError as error:
        return f"a response that cannot be decoded: {error}"
    if end != len(frame):
        return f"a response with {len(frame) - end} bytes too many"
    return response
