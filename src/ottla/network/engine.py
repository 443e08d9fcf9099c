"""The connection engine: what happens between the bytes of connections and a broker.

An event loop drives it: it tells which stream is readable, writable or gone, and when a
wake-up ends. The engine receives, hands frames to the node, lets it settle and sends. It
decides what each connection waits for, and tells the poller.

Invariant: within a wake-up nothing is sent before the node has settled, so an acknowledgement
never leaves before its bytes are written, and no buffer is reused before that either.

A DecodeError closes the connection it came from. Any other exception is a broken invariant:
it leaves the engine and ends the process, because nobody knows what state is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ottla.broker.connection import Connection
from ottla.network.buffers import RequestBuffers
from ottla.network.channel import Channel
from ottla.network.client_warnings import ClientWarnings
from ottla.network.flow_control import FlowControl, is_waiting, takes_requests
from ottla.network.limits import ConnectionLimits
from ottla.network.receiver import ARENA_BYTES, Receiver
from ottla.network.slow_readers import MOST_UNSENT_BYTES, MOST_UNSENT_RANGES, SlowReaders
from ottla.network.stream import READ, Poller, Stream
from ottla.wire.primitives import DecodeError

if TYPE_CHECKING:
    from ottla.network.request_handler import RequestHandler

MOST_PIECES: Final = 8  # of SEND_BYTES that a connection sends while nobody else wants anything
MOST_STREAMED: Final = 3  # large frames of one connection that are answered with the one before
MOST_CLOSED: Final = 50  # idle connections that a wake-up closes
MOST_ROUNDS: Final = 4  # in which a wake-up takes requests that waited; the next one takes the rest


def _never(next_bytes: int = 0) -> bool:
    return False


class Engine:
    """All connections of one node.

    The loop calls `receive` for a readable channel, `send` for a writable one, `close` for one
    whose peer is gone, and `settle` when the wake-up ends. It calls the node's `advance` first.
    """

    def __init__(
        self,
        node: RequestHandler,
        poller: Poller,
        limits: ConnectionLimits,
        buffers: RequestBuffers,
        max_request_bytes: int,
        *,
        arena_bytes: int = ARENA_BYTES,
        most_unsent_bytes: int = MOST_UNSENT_BYTES,
        most_unsent_ranges: int = MOST_UNSENT_RANGES,
    ) -> None:
        self.node = node
        self.poller = poller
        self.buffers = buffers
        self.warnings = ClientWarnings(node)
        self.channels: dict[int, Channel] = {}
        self.to_send: list[Channel] = []
        """Channels that have something to send when the node has settled."""
        self.to_resume: list[Channel] = []
        """Channels with requests that are received and wait for the next wake-up."""
        self.slow_readers = SlowReaders(most_unsent_bytes, most_unsent_ranges)
        self.is_late: Callable[[int], bool] = _never
        """Whether a wake-up should leave a request of this size to the next one, 0 if unknown.

        An event loop replaces it.
        """
        self._rounds = 0
        self._limits = limits
        self._max_request_bytes = max_request_bytes
        self.flow_control = FlowControl(self)
        self.receiver = Receiver(self, arena_bytes)
        self.receive = self.receiver.receive

    # -- connections ---------------------------------------------------------------------

    def accept(self, stream: Stream, host: str, listener: str) -> Channel | None:
        """Take a client's connection; None, and the stream is closed, if a limit forbids it."""
        refusal = self._limits.admit(host)
        if refusal is not None:
            self.warnings.add(refusal)
            stream.close()
            return None
        node = self.node
        channel = Channel(
            stream, Connection(host, listener), node.handle, self._leave, self._max_request_bytes
        )
        self.add(channel)
        return channel

    def _leave(self, connection: Connection) -> None:
        self.node.close_connection(connection)
        self._limits.leave(connection.peer_host)

    def add(self, channel: Channel) -> None:
        """Take a channel, and have it watched."""
        channel.connection.edge = channel
        channel.used_ms = self.node.monotonic_ms
        self.channels[channel.fileno] = channel
        self.poller.register(channel.fileno, channel.interest)

    def refuse(self, channel: Channel, error: DecodeError) -> None:
        """Close a connection that sent an invalid frame, after the replies that it is owed."""
        channel.connection.close_after_replies(str(error))
        self._warn_of(channel.connection)
        if channel.is_outgoing:
            self.close(channel)
            return
        self.to_send.append(channel)

    def _warn_of(self, connection: Connection) -> None:
        """Report once why a connection is closed."""
        problem, connection.problem = connection.problem, None
        if problem is not None:
            self.warnings.add(f"closing the connection of {connection.peer_host}: {problem}")

    def close(self, channel: Channel) -> None:
        """Close a connection, whatever it is doing."""
        if channel.closed:
            return
        del self.channels[channel.fileno]
        self.poller.unregister(channel.fileno)
        self.receiver.drop_buffer(channel)
        self.flow_control.forget(channel)
        self.slow_readers.remove(channel)
        channel.close()
        channel.on_close(channel.connection)
        channel.connection.edge = None  # so that reference counts free both

    def close_all(self) -> None:
        """Close every connection."""
        for channel in list(self.channels.values()):
            self.close(channel)

    def watch_idle(self) -> None:
        """Close connections that are idle for too long, from now on."""
        every_ms = self._limits.idle_check_ms
        if every_ms is not None:
            self.node.timers.at(self.node.monotonic_ms + every_ms, self._close_idle)

    def _close_idle(self) -> None:
        oldest_ms = self.node.monotonic_ms - self._limits.max_idle_ms
        idle = [
            channel
            for channel in self.channels.values()
            if channel.used_ms < oldest_ms and not channel.is_outgoing and not is_waiting(channel)
        ]
        for channel in idle[:MOST_CLOSED]:
            self.close(channel)
        if len(idle) > MOST_CLOSED:
            self.node.timers.at(self.node.monotonic_ms + 1, self._close_idle)
        else:
            self.watch_idle()

    # -- the wake-up ---------------------------------------------------------------------

    def stream_large_frames(self, channel: Channel) -> None:
        """Receive further large frames of a connection that has the broker to itself.

        Each is written at once, while its bytes are in the processor's cache, and its buffer
        serves the next one. They are answered a few at a time.
        """
        connection = channel.connection
        for _ in range(MOST_STREAMED):
            self.node.settle_replies()
            self.receiver.settled()
            self.buffers.reuse_retired()
            self.flow_control.feed_soon = True
            if channel.closed or connection.closing:
                return
            if any(each is not connection for each in self.node.ready):
                return
            if not self.receive(channel):
                return

    @property
    def has_work(self) -> bool:
        """Whether a wake-up has left something for the next one, which must not wait for events."""
        return bool(self.to_resume or self.to_send)

    def resume(self) -> None:
        """Go on with requests that an earlier wake-up has left. Call it before `settle`."""
        channels = list(self.to_resume)
        self.to_resume.clear()
        for number, channel in enumerate(channels, 1):
            if not channel.closed:
                self._resume(channel)
            if number < len(channels) and self.is_late(0):
                self.to_resume[:0] = channels[number:]
                break

    def _resume(self, channel: Channel) -> None:
        """Handle the requests that a channel has kept, if it takes requests now."""
        if channel.filled >= channel.need > 0 and not channel.starved and takes_requests(channel):
            self.receiver.handle_kept(channel)

    def settle(self) -> None:
        """End a wake-up: write what was appended, send replies, take requests that waited.

        One connection may have thousands of requests that wait for the replies before them. Only
        some are taken, then others get their turn. While the engine `has_work` the event loop must
        not wait for events. What the node has put off is done when all replies are sent.
        """
        node, to_send, receiver = self.node, self.to_send, self.receiver
        node.settle_replies()
        receiver.arena_used = receiver.kept_bytes = receiver.piece_bytes = 0
        receiver.large_bytes = 0
        ready, put_off = node.ready, node.put_off
        while to_send or ready or put_off:
            if len(to_send) + len(ready) == 1:
                channel: Channel | None = to_send.pop() if to_send else ready.pop().edge  # type: ignore[assignment]
                if channel is not None and not channel.closed:
                    self.send(channel)
            elif to_send or ready:
                for each in self._take_channels():
                    if not each.closed:
                        self.send(each, 1)
            else:
                node.run_put_off()
                node.settle_replies()
                continue
            node.settle_replies()
            if to_send or ready:
                self._rounds += 1
        if self._rounds:
            self._rounds = 0
            receiver.large_bytes = 0
        if self.buffers.retired_bytes:
            self.buffers.reuse_retired()
            self.flow_control.feed_soon = True
        if self.flow_control.feed_soon:
            self.flow_control.feed_starved()

    def _take_channels(self) -> Iterable[Channel]:
        """Return the channels that may have something to send, and forget them.

        Each is there once: sending may handle a kept request, which is not settled yet.
        """
        to_send, ready = self.to_send, self.node.ready
        channels: dict[Channel, None] = {}
        for channel in to_send:
            channels[channel] = None
        to_send.clear()
        for connection in ready:
            if connection.edge is not None:  # it is not closed
                channels[connection.edge] = None  # type: ignore[index]
        ready.clear()
        return channels

    def send(self, channel: Channel, most_pieces: int = MOST_PIECES) -> None:
        """Send what is ready, then go on with requests that waited for it.

        Large replies are sent in pieces. If others want something meanwhile, the rest waits until
        the poller tells that the stream takes more.
        """
        channel.used_ms = self.node.monotonic_ms
        connection = channel.connection
        try:
            done = channel.send()
            while not done and channel.has_paused:
                channel.has_paused = False
                most_pieces -= 1
                if most_pieces <= 0 or self.poller.has_events():
                    break
                done = channel.send()
        except OSError as error:
            channel.error = error
            self.close(channel)
            return
        if not done:
            channel.writing = True
            self.flow_control.show_interest(channel)
            if not channel.is_outgoing:
                self.slow_readers.add(channel)
                self._close_slow_readers()
            return
        if connection.large_bytes:
            connection.sent()
        if connection.closing and not is_waiting(channel):
            self._warn_of(connection)
            self.close(channel)
            return
        if channel.writing:
            channel.writing = False
            self.slow_readers.remove(channel)
        if channel.interest != READ:
            self.flow_control.show_interest(channel)
        if channel.need and channel.filled >= channel.need:
            if self._rounds + 1 < MOST_ROUNDS and not self.is_late(channel.need):
                self._resume(channel)
            else:
                self.to_resume.append(channel)

    def _close_slow_readers(self) -> None:
        while (slow := self.slow_readers.to_close()) is not None:
            self.warnings.add(
                f"closing the connection of {slow.connection.peer_host}: it does not take its "
                "replies, and too many replies wait in memory"
            )
            self.close(slow)
