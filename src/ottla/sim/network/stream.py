"""The broker's end of a simulated connection: the bytes under way, both ways."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random as Generator

from ottla.network.stream import READ, WRITE
from ottla.ports import Buffer, File
from ottla.sim.network.exchange import Exchange, Violation


class SimStream:
    """A Stream of the engine. A slow one gives and takes bytes in pieces, drawn by chance.

    `inbox` is what arrived and was not received; after `eof` nothing more arrives. `error` is
    why it is broken. What the broker sends goes to `deliver`. `requests` are the exchanges of
    a client whose frames the node has not taken yet, in order.
    """

    __slots__ = (
        "_chance",
        "_number",
        "closed",
        "connecting",
        "deliver",
        "eof",
        "error",
        "inbox",
        "interest",
        "is_recorded",
        "on_close",
        "on_event",
        "requests",
        "sent_bytes",
        "slow",
    )

    def __init__(
        self,
        number: int,
        chance: Generator,
        deliver: Callable[[bytes], None],
        on_close: Callable[[], None],
    ) -> None:
        self._number = number
        self._chance = chance
        self.deliver = deliver
        self.on_close = on_close
        self.on_event: Callable[[], None] = _nothing
        """Called when bytes have arrived, or the end, or an error."""
        self.inbox = bytearray()
        self.requests: deque[Exchange] = deque()
        self.interest = 0
        self.slow = False
        self.eof = False
        self.closed = False
        self.connecting = False
        self.error: OSError | None = None
        self.is_recorded = True
        """Whether a client sends the requests, as exchanges that are recorded."""
        self.sent_bytes = 0

    # -- what happens outside ------------------------------------------------------------

    def arrive(self, data: bytes) -> None:
        """Take bytes of the peer."""
        self.inbox += data
        self.on_event()

    def end(self) -> None:
        """Take note that the peer sends nothing more."""
        self.eof = True
        self.on_event()

    def lose(self) -> None:
        """Lose what is on the way. What the broker has received it may still handle."""
        lost = len(self.inbox)
        self.inbox.clear()
        while lost > 0:
            lost -= len(self.requests.pop().frame)

    def fail(self, error: OSError) -> None:
        """Break the connection."""
        self.error = error
        self.on_event()

    # -- what the engine calls -----------------------------------------------------------

    def fileno(self) -> int:
        return self._number

    def recv_into(self, view: memoryview, /) -> int:
        count = min(len(view), len(self.inbox))
        if self.error is not None:
            raise self.error
        if count == 0:
            if self.eof:
                return 0
            raise BlockingIOError
        if self.slow and count > 1:
            count = self._chance.randint(1, count)
        view[:count] = self.inbox[:count]
        del self.inbox[:count]
        return count

    def send(self, data: Buffer, /) -> int:
        count = len(data)
        if self.error is not None:
            raise self.error
        if self.connecting:
            raise BlockingIOError
        if self.slow and self._chance.random() < 0.3:
            count = self._chance.randrange(count + 1)
            if count == 0:
                raise BlockingIOError
        self.sent_bytes += count
        self.deliver(bytes(data[:count]))
        return count

    def send_more(self, data: Buffer, /) -> int:
        return self.send(data)

    def send_file(self, file: File, position: int, length: int, /) -> int:
        data = file.pread(length, position)
        if len(data) != length:
            raise Violation(f"{file.path} gave {len(data)} bytes of {length} when they were sent")
        return self.send(data)

    def close(self) -> None:
        self.closed = True
        self.on_close()

    # -- what the loop asks --------------------------------------------------------------

    @property
    def is_readable(self) -> bool:
        return bool(self.interest & READ and (self.inbox or self.eof or self.error))

    @property
    def is_blocked(self) -> bool:
        """Whether the broker waits until the peer takes more bytes."""
        return bool(self.interest & WRITE)


class SimPoller:
    """The Poller of a simulated loop: each stream knows what the engine waits for."""

    def __init__(self) -> None:
        self.streams: dict[int, SimStream] = {}

    def register(self, fileno: int, interest: int) -> None:
        self.streams[fileno].interest = interest

    def modify(self, fileno: int, interest: int) -> None:
        self.streams[fileno].interest = interest

    def unregister(self, fileno: int) -> None:
        del self.streams[fileno]

    def has_events(self) -> bool:
        """Return True: others always come before the rest of a large reply."""
        return True


def _nothing() -> None:
    """Do nothing: nobody listens."""
