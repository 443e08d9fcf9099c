"""Records what a node decides: every request it handles, and the replies once they are final.

The recorder stands between the engine and the node. It notes requests in the order the node
takes them. Whenever the node has settled it looks at what each connection has to send, and
finds the replies there, in the order of the requests. Then it overwrites the bytes of the
requests, so whoever keeps them for longer than allowed is found out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final, TypeAlias

from ottla.broker.connection import Connection
from ottla.broker.node import Node
from ottla.log.segment.file_slice import FileSlice
from ottla.network.channel import Channel
from ottla.sim.disk.file import SimFile
from ottla.sim.network.exchange import Exchange, Violation
from ottla.sim.network.stream import SimStream
from ottla.wire.apis import ApiKey
from ottla.wire.primitives import DecodeError

_ABANDONED: Final = (ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
"""Requests that end when their connection does."""
_OVERWRITTEN: Final = b"\xee"
_SIZE = Struct(">i")

Handle: TypeAlias = Callable[[Connection, bytearray, memoryview, int, int], None]


class Handled:
    """A request the node took. `reply` is its reply's frame once that is final."""

    __slots__ = ("channel", "exchange", "is_settled", "number", "reply", "waits")

    def __init__(self, number: int, channel: Channel, exchange: Exchange) -> None:
        self.number = number
        self.channel = channel
        self.exchange = exchange
        self.waits = False
        """Whether it is a fetch that waits for data."""
        self.reply = b""
        self.is_settled = False


class Settled:
    """What became of requests with one settling, each in the order of handling."""

    __slots__ = ("answered", "lost", "pending", "woken")

    def __init__(self) -> None:
        self.answered: list[Handled] = []
        self.woken: list[Handled] = []
        """Fetches that waited, and were answered after everything else."""
        self.pending: list[Handled] = []
        """Requests that were handled, and whose replies come later: what they do may show."""
        self.lost: list[Handled] = []
        """Requests whose connection was closed: no client learns their outcome."""


class NodeRecorder:
    """A RequestHandler around a node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.timers = node.timers
        self.report = node.report
        self.ready = node.ready
        self.put_off = node.put_off
        self._numbers = 0
        self._waiting: dict[Channel, deque[Handled]] = {}
        self._seen_bytes: dict[Channel, int] = {}
        self._unsettled: list[tuple[bytearray, int, int]] = []
        self._early: list[Handled] = []
        self._lost: list[Handled] = []
        self.on_settled: Callable[[Settled], None] = lambda settled: None
        self.on_refused: Callable[[Exchange, DecodeError], None] = lambda which, why: None
        """Called with frames that were no requests."""

    # -- what the engine calls -----------------------------------------------------------

    @property
    def monotonic_ms(self) -> float:
        return self._node.monotonic_ms

    def advance(self) -> None:
        """Begin a wake-up."""
        self._node.advance()
        self.note_early()

    def note_early(self) -> None:
        """Take the replies that timers or the background have completed.

        They were decided before any request that is handled next, in the order of `ready`.
        Fetches come last: a change that is told here may be what they waited for.
        """
        order = {connection.edge: number for number, connection in enumerate(self.ready)}
        found = self._collect()
        self._early += sorted(found.answered, key=lambda each: order.get(each.channel, -1))
        self._early += found.woken
        self._lost += found.lost

    def handle(
        self, connection: Connection, buffer: bytearray, view: memoryview, start: int, end: int
    ) -> None:
        channel, stream = _ends(connection)
        self._unsettled.append((buffer, start, end))
        if not stream.is_recorded:
            self._node.handle(connection, buffer, view, start, end)
            return
        exchange = stream.requests.popleft()
        before = _total_bytes(channel)
        self._numbers += 1
        exchange.handled_ms = self._node.monotonic_ms
        handled = Handled(self._numbers, channel, exchange)
        waiting = self._waiting.setdefault(channel, deque())
        waiting.append(handled)
        try:
            self._node.handle(connection, buffer, view, start, end)
        except DecodeError as refusal:
            if _total_bytes(channel) != before:
                raise Violation(f"{exchange!r}: answered and refused") from None
            waiting.pop()
            self.on_refused(exchange, refusal)
            raise
        if exchange.api_key == ApiKey.FETCH:
            handled.waits = connection.parked is not None

    def run_put_off(self) -> None:
        self._node.run_put_off()

    def settle_replies(self) -> None:
        self._node.settle_replies()
        found = self._collect()
        found.answered[:0], self._early = self._early, []
        found.lost[:0], self._lost = self._lost, []
        self._add_pending(found)
        self.on_settled(found)
        for buffer, start, end in self._unsettled:
            buffer[start:end] = _OVERWRITTEN * (end - start)
        self._unsettled.clear()

    def overwriting(self, handle: Handle) -> Handle:
        """Return a handler whose frames are overwritten when the node has settled."""

        def take(
            connection: Connection, buffer: bytearray, view: memoryview, start: int, end: int
        ) -> None:
            self._unsettled.append((buffer, start, end))
            handle(connection, buffer, view, start, end)

        return take

    def close_connection(self, connection: Connection) -> None:
        self._node.close_connection(connection)

    # -- what was decided ----------------------------------------------------------------

    def owes_reply(self, channel: Channel) -> bool:
        """Return whether a request waits for its reply that takes effect all the same."""
        return any(
            handled.exchange.api_key not in _ABANDONED for handled in self._waiting.get(channel, ())
        )

    def open_requests(self) -> list[Handled]:
        """Return the requests that were handled and have no reply yet, in order."""
        found = [handled for waiting in self._waiting.values() for handled in waiting]
        return sorted([*self._early, *self._lost, *found], key=_number)

    def _collect(self) -> Settled:
        """Find the replies that came since the last time."""
        settled = Settled()
        for channel in list(self._waiting):
            waiting = self._waiting[channel]
            if not waiting and not channel.closed:
                continue  # bytes that answer nothing are found with the next request
            if channel.closed:
                settled.lost += [each for each in waiting if not each.waits]
                del self._waiting[channel]
                self._seen_bytes.pop(channel, None)
                continue
            self._match(channel, waiting, settled)
        for found in (settled.answered, settled.woken, settled.lost):
            found.sort(key=_number)
        return settled

    def _add_pending(self, settled: Settled) -> None:
        """Add the requests that were handled since the last settling and have no reply."""
        for waiting in self._waiting.values():
            for handled in waiting:
                if not handled.is_settled and not handled.waits:
                    settled.pending.append(handled)
                handled.is_settled = True
        settled.pending.sort(key=_number)

    def _match(self, channel: Channel, waiting: deque[Handled], settled: Settled) -> None:
        """Give the new replies of a connection to its requests, in order."""
        total = _total_bytes(channel)
        data = _newest_bytes(channel, total - self._seen_bytes.get(channel, 0))
        self._seen_bytes[channel] = total
        position = 0
        while waiting:
            handled = waiting[0]
            if handled.exchange.wants_reply:
                if position == len(data):
                    return
                stop = position + 4 + _SIZE.unpack_from(data, position)[0]
                handled.reply = data[position:stop]
                position = stop
            (settled.woken if handled.waits else settled.answered).append(waiting.popleft())
        if position != len(data):
            raise Violation(f"{data[position:]!r} answers nothing that was asked")


def answer_all(settled: Settled) -> None:
    """Let every exchange take its reply, unjudged."""
    for handled in (*settled.answered, *settled.woken):
        if handled.reply:
            handled.exchange.answer(handled.reply)


def _number(handled: Handled) -> int:
    return handled.number


def _ends(connection: Connection) -> tuple[Channel, SimStream]:
    channel = connection.edge
    assert isinstance(channel, Channel)
    stream = channel.stream
    assert isinstance(stream, SimStream)
    return channel, stream


def _total_bytes(channel: Channel) -> int:
    """Return how many bytes of replies this connection ever had to send."""
    stream = channel.stream
    assert isinstance(stream, SimStream)
    return stream.sent_bytes + channel.unsent_bytes


def _newest_bytes(channel: Channel, count: int) -> bytes:
    """Return the last bytes a connection has to send, read without anybody noticing."""
    if count == 0:
        return b""
    data = b"".join(_peek(part) for part in channel.connection.out)
    assert len(data) >= count, "a reply was sent before the node had settled"
    return data[len(data) - count :]


def _peek(part: bytes | FileSlice) -> bytes:
    if isinstance(part, FileSlice):
        file = part.file
        assert isinstance(file, SimFile)
        return file.peek(part.length, part.position)
    return part
