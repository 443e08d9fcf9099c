"""One socket: the frame that is arriving, and the responses that are leaving."""

from __future__ import annotations

import os
import socket
from typing import Final

from ottla.broker.connection import Connection
from ottla.log.segment.file_slice import FileSlice

MORE: Final = getattr(socket, "MSG_MORE", 0)
_COPY_BYTES: Final = 256 * 1024
_JOIN_PARTS: Final = 256


class Channel:
    """A connection's socket. `filled` bytes of `buffer` hold the start of what is to handle.

    `need` is the size the buffer must be filled to before there is something to handle,
    `reserved` what was reserved for it, `last_size` the size of the frame before. `writing`
    means the peer does not take our responses as fast as we have them: nothing is read from
    it meanwhile.
    """

    __slots__ = (
        "buffer",
        "closed",
        "connection",
        "fd",
        "filled",
        "interest",
        "last_size",
        "muted",
        "need",
        "recv_into",
        "reserved",
        "sock",
        "unsent",
        "used_ms",
        "view",
        "writing",
    )

    def __init__(self, sock: socket.socket, connection: Connection, interest: int) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.recv_into = sock.recv_into
        self.connection = connection
        self.buffer: bytearray | None = None
        self.view: memoryview | None = None
        self.filled = 0
        self.need = 0
        self.last_size = 0
        self.reserved = 0
        self.unsent: memoryview | None = None
        self.used_ms = 0.0
        self.interest = interest
        self.writing = False
        self.muted = False
        self.closed = False

    def send(self) -> bool:
        """Send what is ready; False when the socket takes no more now, OSError when it broke."""
        out = self.connection.out
        try:
            if self.unsent is not None and not self._send_unsent():
                return False
            if len(out) == 1 and type(out[0]) is bytes:  # nearly always
                reply = out[0]
                sent = self.sock.send(reply)
                out.clear()
                if sent == len(reply):
                    return True
                self.unsent = memoryview(reply)[sent:]
                return False
            while out:
                if type(out[0]) is bytes:
                    if not self._send_bytes(out):
                        return False
                elif not self._send_slice(out):
                    return False
        except BlockingIOError:
            return False
        return True

    def _send_unsent(self) -> bool:
        assert self.unsent is not None
        rest = self.unsent[self.sock.send(self.unsent) :]
        self.unsent = rest if len(rest) else None
        return self.unsent is None

    def _send_bytes(self, out: list[bytes | FileSlice]) -> bool:
        count = 1
        while count < len(out) and count < _JOIN_PARTS and type(out[count]) is bytes:
            count += 1
        data = out[0] if count == 1 else b"".join(out[:count])  # type: ignore[arg-type]
        assert isinstance(data, bytes)
        sent = self.sock.send(data, MORE if count < len(out) else 0)
        del out[:count]
        if sent < len(data):
            self.unsent = memoryview(data)[sent:]
        return self.unsent is None

    def _send_slice(self, out: list[bytes | FileSlice]) -> bool:
        part = out[0]
        assert isinstance(part, FileSlice)
        file, position, length = part
        descriptor = file.fileno()
        if descriptor >= 0:
            sent = os.sendfile(self.fd, descriptor, position, length)
        else:
            sent = self.sock.send(file.pread(min(length, _COPY_BYTES), position), MORE)
        if sent == 0:
            raise OSError(f"{file.path} ends before what was promised from it")
        if sent == length:
            del out[0]
            return True
        out[0] = FileSlice(file, position + sent, length - sent)
        return descriptor < 0

    def close(self) -> None:
        self.closed = True
        self.connection.out.clear()
        self.unsent = None
        self.sock.close()
