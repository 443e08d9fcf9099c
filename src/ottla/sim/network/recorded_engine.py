"""The connection engine of a simulated broker.

It is compiled with the engine (tools/compiled_modules.txt): a class that inherits from a compiled
one must be compiled too.
"""

from __future__ import annotations

from ottla.network.channel import Channel
from ottla.network.engine import Engine
from ottla.sim.network.recorder import NodeRecorder


class RecordedEngine(Engine):
    """An engine whose peers' responses are overwritten after the wake-up, as requests are."""

    def add(self, channel: Channel) -> None:
        """Take a channel, and have it watched."""
        if channel.is_outgoing:
            assert isinstance(self.node, NodeRecorder)
            channel.handle = self.node.overwriting(channel.handle)
        super().add(channel)
