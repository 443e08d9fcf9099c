"""A proxy in front of a broker that keeps every request frame its clients send."""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from types import TracebackType
from typing import Self

from tests.harness.raw import split_address


class CapturingProxy:
    """Listens on a free port from the start, and passes on to `target` once that is set."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.target = ""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._peers: dict[socket.socket, socket.socket] = {}
        self._requests: dict[socket.socket, bytearray] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def frames(self) -> list[bytes]:
        """Return all whole request frames seen so far, without their sizes, in no special order."""
        return [frame for data in list(self._requests.values()) for frame in _split(bytes(data))]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        for each in [self._listener, *self._peers]:
            each.close()
        self._selector.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            for key, _ in self._selector.select(0.05):
                source = key.fileobj
                assert isinstance(source, socket.socket)
                if source is self._listener:
                    self._accept()
                elif source in self._peers:
                    self._pass_on(source)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(split_address(self.target))
        except OSError:  # the broker is down
            client.close()
            return
        self._peers |= {client: server, server: client}
        self._requests[client] = bytearray()
        for each in (client, server):
            self._selector.register(each, selectors.EVENT_READ)

    def _pass_on(self, source: socket.socket) -> None:
        peer = self._peers[source]
        try:
            data = source.recv(1 << 16)
            peer.sendall(data)
        except OSError:
            data = b""
        if source in self._requests:
            self._requests[source] += data
        if not data:
            for each in (source, peer):
                self._selector.unregister(each)
                del self._peers[each]
                each.close()


def _split(data: bytes) -> list[bytes]:
    frames = []
    position = 0
    while position + 4 <= len(data):
        (size,) = struct.unpack_from(">i", data, position)
        frames.append(data[position + 4 : position + 4 + size])
        position += 4 + size
    return frames
