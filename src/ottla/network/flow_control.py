"""Flow control: when a connection is read from, and how memory is shared among them.

A connection whose peer does not take its responses, or that has enough requests waiting, is
not read from: what it sends stays in the kernel. A connection whose next frame gets no memory
is starved. It continues, in the order of arrival, when others have given memory back. While
a connection is starved, connections that hold memory and send next to nothing are closed.

A connection is used when a whole request arrives, when another 64 KiB of a large one have arrived,
and when its replies are sent (`Channel.used_ms`). So neither connections.max.idle.ms nor the
memory of others can be undermined by single bytes. In Kafka any byte counts.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from ottla.network.buffers import LITTLE_BYTES, next_size
from ottla.network.channel import Channel
from ottla.network.stream import HANG_UP, READ, WRITE

if TYPE_CHECKING:
    from ottla.network.engine import Engine

STALLED_MS: Final = 5000
STALL_CHECK_MS: Final = 500


def takes_requests(channel: Channel) -> bool:
    """Return whether further frames of this connection may be handled now.

    Responses of a peer always are.
    """
    return channel.is_outgoing or channel.connection.takes_requests


def is_waiting(channel: Channel) -> bool:
    """Return whether a request of this connection waits for its reply: it is not idle."""
    return bool(channel.connection.pending)


class FlowControl:
    """Interests of all channels, and those that are starved."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._node = engine.node
        self._buffers = engine.buffers
        self._poller = engine.poller
        self._starved: deque[Channel] = deque()
        self.feed_soon = False
        """Whether memory may have become free for those that are starved."""

    # -- interests -----------------------------------------------------------------------

    def show_interest(self, channel: Channel) -> None:
        """Tell the poller what this channel waits for."""
        if channel.writing:
            # A peer's responses are read meanwhile: it may not take more requests before.
            reads = channel.is_outgoing and not channel.starved
            self._set(channel, READ | WRITE if reads else WRITE)
        elif channel.starved or not takes_requests(channel):
            self._set(channel, HANG_UP)
        else:
            self._set(channel, READ)

    def _set(self, channel: Channel, interest: int) -> None:
        if channel.interest != interest:
            channel.interest = interest
            self._poller.modify(channel.fileno, interest)

    # -- memory --------------------------------------------------------------------------

    def reserve(self, channel: Channel, size: int) -> bool:
        """Reserve `size` bytes in all for the frame that arrives; False if there is no room."""
        if self._buffers.reserve(size - channel.reserved, is_little=size <= LITTLE_BYTES):
            channel.reserved = size
            return True
        return False

    def starve(self, channel: Channel) -> None:
        """Let a channel wait for memory."""
        channel.starved = True
        self._engine.receiver.receive_little()
        self._starved.append(channel)
        self.show_interest(channel)
        if len(self._starved) == 1:
            self._node.timers.at(self._node.monotonic_ms + STALL_CHECK_MS, self._close_stalled)
        self.feed_soon = True

    def forget(self, channel: Channel) -> None:
        """Forget a channel that was closed."""
        if channel.starved:
            self._starved.remove(channel)

    def feed_starved(self) -> None:
        """Continue with channels that wait for memory, in their order, as far as there is some."""
        self.feed_soon = False
        while self._starved:
            channel = self._starved[0]
            assert channel.buffer is not None
            wanted = len(channel.buffer)
            if channel.filled >= wanted:
                wanted = next_size(wanted, channel.need)
            if not self.reserve(channel, wanted):
                if self._buffers.reserved_bytes > sum(other.reserved for other in self._starved):
                    return
                # Only those that wait hold memory: one of them must go on, over the limit.
                self._buffers.exceed(wanted - channel.reserved)
                channel.reserved = wanted
            self._starved.popleft()
            channel.starved = False
            self.show_interest(channel)
            is_full = channel.filled >= min(channel.need, len(channel.buffer))
            if is_full and takes_requests(channel):
                self._engine.receiver.handle_kept(channel)
        self._engine.receiver.receive_much()

    def _close_stalled(self) -> None:
        """Close connections that hold memory and send next to nothing, while others wait for it."""
        if not self._starved:
            return
        oldest_ms = self._node.monotonic_ms - STALLED_MS
        for channel in list(self._engine.channels.values()):
            is_arriving = channel.filled < channel.need
            if is_arriving and not channel.starved and channel.used_ms <= oldest_ms:
                self._engine.warnings.add(
                    f"closing the connection of {channel.connection.peer_host}: nothing more of "
                    f"its request of {channel.need} bytes arrives, and others wait for the memory"
                )
                self._engine.close(channel)
        self.feed_starved()
        self._node.timers.at(self._node.monotonic_ms + STALL_CHECK_MS, self._close_stalled)
