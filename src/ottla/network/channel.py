"""One connection in the engine: the frame that arrives, the parts that leave."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Final

from ottla.broker.connection import MOST_REPLIES, Connection, Part
from ottla.log.segment.file_slice import FileSlice
from ottla.network.stream import READ, Stream

SMALLEST_REQUEST: Final = 8
SEND_BYTES: Final = 512 * 1024  # what a connection sends before the engine asks for others
_JOIN_PARTS: Final = 256
_JOIN_BYTES: Final = 64 * 1024  # small parts are sent with one call; large ones are not copied


class Channel:
    """A connection's stream. `filled` bytes of `buffer` are the beginning of the next frame.

    `need` is the size the buffer must be filled to before there is something to handle,
    `reserved` what was reserved for it, `last_size` the size of the frame before.
    `writing` means that replies wait until the stream takes more; `has_paused` that it would take
    more already, but others may come first; `starved` that the next frame waits for memory.

    `handle` takes a frame: the node for requests of a client, a peer for its responses.
    """

    __slots__ = (
        "_send",
        "buffer",
        "closed",
        "connection",
        "error",
        "fileno",
        "filled",
        "handle",
        "has_paused",
        "interest",
        "is_outgoing",
        "largest_frame",
        "last_size",
        "most_replies",
        "need",
        "on_close",
        "recv_into",
        "reserved",
        "smallest_frame",
        "starved",
        "stream",
        "unsent",
        "used_ms",
        "view",
        "writing",
    )

    def __init__(
        self,
        stream: Stream,
        connection: Connection,
        handle: Callable[[Connection, bytearray, memoryview, int, int], None],
        on_close: Callable[[Connection], None],
        largest_frame: int,
    ) -> None:
        self.stream = stream
        self.fileno = stream.fileno()
        self.recv_into = stream.recv_into
        self._send = stream.send
        self.connection = connection
        self.handle = handle
        self.on_close = on_close
        self.largest_frame = largest_frame
        self.smallest_frame = SMALLEST_REQUEST
        self.is_outgoing = False
        self.most_replies = MOST_REPLIES
        self.buffer: bytearray | None = None
        self.view: memoryview | None = None
        self.filled = 0
        self.need = 0
        self.last_size = 0
        self.reserved = 0
        self.unsent: memoryview | None = None
        self.used_ms = 0.0
        self.interest = READ
        self.writing = False
        self.has_paused = False
        self.starved = False
        self.closed = False
        self.error: OSError | None = None
        """Why the stream broke, if it did."""

    def send(self) -> bool:
        """Send what is ready; False if there is more to send later. Raise OSError if it broke.

        That is the case when the stream takes no more now, or after SEND_BYTES (`has_paused`).
        """
        out = self.connection.out
        try:
            if self.unsent is not None and not self._send_unsent():
                return False
            if len(out) == 1 and type(reply := out[0]) is bytes:  # nearly always
                send = self._send
                sent = send(reply)
                out.clear()
                if sent == len(reply):
                    return True
                self.unsent = memoryview(reply)[sent:]
                return False
            room = SEND_BYTES
            while out:
                if room <= 0:
                    self.has_paused = True
                    return False
                sent = self._send_bytes(out) if type(out[0]) is bytes else self._send_slice(out)
                if sent < 0:
                    return False
                room -= sent
        except BlockingIOError:
            return False
        return True

    def _send_unsent(self) -> bool:
        assert self.unsent is not None
        sent = self._send(self.unsent)
        rest = self.unsent[sent:]
        self.unsent = rest if len(rest) else None
        return self.unsent is None

    def _send_bytes(self, out: list[Part]) -> int:
        """Send the parts in memory before the next slice; return how much, -1 if not all of it."""
        data = out[0]
        assert isinstance(data, bytes)
        count, size = 1, len(data)
        while count < len(out) and count < _JOIN_PARTS and type(out[count]) is bytes:
            size += len(out[count])
            if size > _JOIN_BYTES:
                break
            count += 1
        if count > 1:
            data = b"".join(out[:count])  # type: ignore[arg-type]
        sent = self.stream.send_more(data) if count < len(out) else self._send(data)
        del out[:count]
        if sent < len(data):
            self.unsent = memoryview(data)[sent:]
            return -1
        return sent

    def _send_slice(self, out: list[Part]) -> int:
        """Send from a file, at most SEND_BYTES; return how much, -1 if not all of that."""
        part = out[0]
        assert isinstance(part, FileSlice)
        file, position, length = part
        wanted = min(length, SEND_BYTES)
        sent = self.stream.send_file(file, position, wanted)
        if sent == 0:
            raise OSError(f"{file.path} ends before the range that is being sent from it")
        if sent == length:
            del out[0]
        else:
            out[0] = FileSlice(file, position + sent, length - sent)
        return sent if sent == wanted else -1

    def held(self) -> tuple[int, int]:
        """Return how much memory the replies take that are not sent, and how many file ranges.

        A range keeps its file open, and the disk space of one that was deleted.
        """
        held_bytes = 0 if self.unsent is None else len(self.unsent.obj)  # type: ignore[arg-type]
        ranges = 0
        replies = [self.connection.out, *(reply.parts or () for reply in self.connection.pending)]
        for part in chain.from_iterable(replies):
            if isinstance(part, FileSlice):
                ranges += 1
            else:
                held_bytes += len(part)
        return held_bytes, ranges

    @property
    def unsent_bytes(self) -> int:
        """How many bytes wait to be sent."""
        begun = 0 if self.unsent is None else len(self.unsent)
        return begun + sum(
            part.length if isinstance(part, FileSlice) else len(part)
            for part in self.connection.out
        )

    def close(self) -> None:
        """Close the stream, and drop what was not sent."""
        self.closed = True
        self.connection.out.clear()
        self.unsent = None
        self.stream.close()
