"""A plain TCP socket as a stream of the engine. A TLS stream would be a file beside this one."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from typing import Final

from ottla.ports import Buffer, File

_MORE: Final = getattr(socket, "MSG_MORE", 0)
_COPY_BYTES: Final = 256 * 1024
_sendfile: Callable[[int, int, int, int], int] | None = getattr(os, "sendfile", None)


def use_cubic(sock: socket.socket) -> None:
    """Use cubic, which paces nothing: on fast networks BBR costs much more CPU."""
    option = getattr(socket, "TCP_CONGESTION", None)
    if option is not None:
        with contextlib.suppress(OSError):  # not built into this kernel: its default serves
            sock.setsockopt(socket.IPPROTO_TCP, option, b"cubic")


class SocketStream:
    """A non-blocking socket. The hot calls are the socket's own methods."""

    __slots__ = ("_fileno", "_sock", "recv_into", "send")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._fileno = sock.fileno()
        self.recv_into = sock.recv_into
        self.send = sock.send

    def fileno(self) -> int:
        return self._fileno

    def send_more(self, data: Buffer, /) -> int:
        return self._sock.send(data, _MORE)

    def send_file(self, file: File, position: int, length: int, /) -> int:
        # The system call differs on macOS, but Python's function does not: it returns what was
        # sent when the socket is full, and raises BlockingIOError if that is nothing. On macOS a
        # length of 0 means all of the file.
        assert length > 0
        descriptor = file.fileno()
        if descriptor >= 0 and _sendfile is not None:
            return _sendfile(self._fileno, descriptor, position, length)
        return self._send_copies(file, position, length)

    def _send_copies(self, file: File, position: int, length: int) -> int:
        """Send from a file that the operating system does not know."""
        sent = 0
        while sent < length:
            data = file.pread(min(length - sent, _COPY_BYTES), position + sent)
            try:
                count = self._sock.send(data, _MORE) if data else 0
            except BlockingIOError:
                if sent == 0:
                    raise
                return sent
            sent += count
            if count == 0 or count < len(data):
                return sent
        return sent

    def close(self) -> None:
        self._sock.close()
