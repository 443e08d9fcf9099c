"""What the engine needs from the outside: byte streams, and a poller that watches them.

`ottla.server` implements both on the operating system (sockets, epoll), `ottla.sim` in memory.
A TLS stream, or another event API, is one more implementation of these protocols.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from ottla.ports import Buffer, File

HANG_UP: Final = 0
READ: Final = 1
WRITE: Final = 2
"""What a channel waits for. Whether the peer hangs up is watched in every case."""


class Stream(Protocol):
    """A connected, or connecting, stream of bytes that never blocks.

    Every call raises BlockingIOError when nothing can be done now, and another OSError when
    the stream is broken. The engine may call `recv_into` once in a wake-up and leave bytes behind.
    So a stream that buffers (TLS) must be reported as readable by its poller as long as it has
    decrypted bytes, even if its socket has none.
    """

    def fileno(self) -> int:
        """Return the number that the poller knows this stream by."""
        ...

    def recv_into(self, view: memoryview, /) -> int:
        """Receive at most `len(view)` bytes; return how many, 0 if the peer sends no more."""
        ...

    def send(self, data: Buffer, /) -> int:
        """Send as much of `data` as possible; return how many bytes that was."""
        ...

    def send_more(self, data: Buffer, /) -> int:
        """Send like `send`, knowing that more bytes follow at once."""
        ...

    def send_file(self, file: File, position: int, length: int, /) -> int:
        """Send a range of a file; fewer than `length` bytes mean: no more can be sent now."""
        ...

    def close(self) -> None: ...


class Connector(Protocol):
    """Opens streams to other brokers."""

    def connect(self, host: str, port: int, done: Callable[[Stream | OSError], None]) -> None:
        """Begin to connect. `done` is called later, on the loop, never from within this call.

        The stream may still be connecting. It becomes writable when it is connected, or when
        that has failed: then its calls raise OSError.
        """
        ...


class Poller(Protocol):
    """Watches streams, known by their `fileno`, for what a channel waits for."""

    def register(self, fileno: int, interest: int) -> None: ...

    def modify(self, fileno: int, interest: int) -> None: ...

    def unregister(self, fileno: int) -> None: ...

    def has_events(self) -> bool:
        """Return whether there are events now. They stay where they are."""
        ...
