"""Scripted runs: a broker on a simulated disk, told step by step what happens to it.

For tests of what the simulator found. Nothing is left to chance here: requests are handled
one by one, background work is done when asked for, a power failure loses all that was not
synced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.broker.node import Node
from ottla.sim.machine import LISTENER, Machine
from ottla.sim.network.event_loop import SimLoop
from ottla.sim.network.exchange import Exchange, make_exchange
from ottla.sim.network.recorder import answer_all
from ottla.sim.network.stream import SimStream
from ottla.sim.profile import Profile, profile_of
from ottla.wire.message import Message

QUIET: Final = {
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "log.initial.task.delay.ms": "86400000",
}
"""Settings with which nothing happens by itself."""


class Script:
    """A machine with one broker; `properties` are Kafka's, beyond its log directories."""

    def __init__(
        self, properties: Mapping[str, str] | None = None, *, log_dirs: tuple[str, ...] = ("/data",)
    ) -> None:
        settings = {**QUIET, "log.dirs": ",".join(log_dirs), **(properties or {})}
        self.machine = Machine(0, quiet_profile(log_dirs, settings))
        self.disk = self.machine.disk
        self.faults = self.machine.faults
        self._stream: SimStream | None = None
        self.start()

    @property
    def node(self) -> Node:
        assert self.machine.node is not None, "the broker is not running"
        return self.machine.node

    @property
    def loop(self) -> SimLoop:
        assert self.machine.loop is not None, "the broker is not running"
        return self.machine.loop

    # -- life ----------------------------------------------------------------------------

    def start(self) -> None:
        """Start the broker on what the disk holds."""
        self.machine.start()
        self.loop.recorder.on_settled = answer_all
        self._stream = self.connect()

    def stop(self) -> None:
        """Stop it cleanly."""
        self.machine.stop()

    def kill(self) -> None:
        """End the process; the page cache stays."""
        self.machine.kill()

    def lose_power(self) -> None:
        """Lose all that was not synced."""
        self.disk.lose_unsynced()

    # -- time and work -------------------------------------------------------------------

    def finish_background(self) -> None:
        """Do the work that waits for the background, and hand over its results."""
        self.machine.background.finish()

    def pass_time(self, milliseconds: float) -> None:
        """Let time pass, and the timers run that are due then."""
        clock = self.machine.clock
        clock.advance_to(clock.monotonic_ms() + milliseconds)
        self.wake()

    def wake(self) -> None:
        """Take one turn of the loop."""
        self.loop.wake([])

    # -- clients -------------------------------------------------------------------------

    def connect(self) -> SimStream:
        """Return a new connection."""
        return self.loop.connect(LISTENER, lambda data: None, lambda: None)

    def send(self, stream: SimStream, request: Message, version: int) -> Exchange:
        """Put a request on the wire; the next turn of the loop handles it."""
        exchange = make_exchange("script", 1, request, version)
        stream.requests.append(exchange)
        stream.arrive(exchange.frame)
        return exchange

    def ask(self, request: Message, version: int) -> Message:
        """Return the broker's answer, which it gives at once or after work in the background."""
        assert self._stream is not None
        exchange = self.send(self._stream, request, version)
        self.wake()
        while exchange.reply is None and self.machine.background.run_one():
            self.wake()
        assert exchange.reply is not None, f"{exchange!r} was not answered"
        return exchange.reply


def quiet_profile(log_dirs: tuple[str, ...], properties: dict[str, str]) -> Profile:
    """Return a profile with these settings, under which nothing is left to chance."""
    profile = profile_of(0)
    return profile._replace(log_dirs=log_dirs, properties=properties, max_open_files=100)
