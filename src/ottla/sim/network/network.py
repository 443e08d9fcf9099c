"""The network between simulated machines: connections with delays, which can be cut and healed.

While two machines are cut off from each other, bytes between them wait, as TCP sends them
again and again; new connections wait as well. A killed process closes its connections. A
machine that lost its power says nothing: what is sent to it is lost until it runs again, and
then its peers notice that their connection is closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random as Generator
from typing import Final

from ottla.network.stream import Stream
from ottla.sim.driver import MachineDriver
from ottla.sim.machine import LISTENER
from ottla.sim.network.stream import SimStream
from ottla.sim.timeline import Timeline

DELAYS_MS: Final = (0.0, 0.0, 1.0, 2.0, 5.0, 30.0)
SLOW: Final = 0.3
"""How many connections give and take bytes in pieces."""


class End:
    """One end of a connection: a stream of the process that a machine ran then."""

    __slots__ = ("driver", "listener", "loop", "stream")

    def __init__(
        self, driver: MachineDriver, stream: SimStream | None = None, listener: str = LISTENER
    ) -> None:
        self.driver = driver
        self.listener = listener
        """Which listener took the connection, at the end of the server."""
        self.loop = driver.machine.loop
        self.stream = stream

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs and has not closed its end."""
        stream = self.stream
        is_same = self.loop is not None and self.driver.machine.loop is self.loop
        return is_same and stream is not None and not stream.closed


class Direction:
    """Bytes on their way from one end to the other, in their order; None is the end of them."""

    __slots__ = ("arrives_ms", "held", "pieces", "sender", "target")

    def __init__(self, sender: End, target: End) -> None:
        self.sender = sender
        self.target = target
        self.pieces: deque[bytes | None] = deque()
        self.arrives_ms = 0.0
        self.held = 0
        """How many pieces would have arrived if the machines were not cut off."""


class SimNetwork:
    """All endpoints and connections of a run."""

    def __init__(self, timeline: Timeline, chance: Generator) -> None:
        self._timeline = timeline
        self._chance = chance
        self._endpoints: dict[tuple[str, int], tuple[MachineDriver, str]] = {}
        self._cuts: set[tuple[MachineDriver, MachineDriver]] = set()
        """Pairs (sender, target) between which nothing arrives."""
        self._directions: list[Direction] = []
        self._waiting: list[tuple[End, End]] = []
        """Connections that wait to be made until a cut is healed."""

    def add_endpoint(
        self, host: str, port: int, driver: MachineDriver, listener: str = LISTENER
    ) -> None:
        """Let others reach a listener of a machine at this address."""
        self._endpoints[host, port] = driver, listener

    # -- faults --------------------------------------------------------------------------

    def cut(self, one: MachineDriver, other: MachineDriver) -> None:
        """Let nothing through between two machines."""
        self._cuts |= {(one, other), (other, one)}

    def cut_one_way(self, sender: MachineDriver, target: MachineDriver) -> None:
        """Let nothing of one machine arrive at another; the other way stays open."""
        self._cuts.add((sender, target))

    def heal(self, one: MachineDriver, other: MachineDriver) -> None:
        """Let everything through again, also what was sent meanwhile."""
        self._cuts -= {(one, other), (other, one)}
        for direction in self._directions:
            held, direction.held = direction.held, 0
            for _ in range(held):
                self._plan_arrival(direction)
        waiting, self._waiting = self._waiting, []
        for client, server in waiting:
            self._plan(lambda c=client, s=server: self._establish(c, s))  # type: ignore[misc]

    def drop(self, one: MachineDriver, other: MachineDriver) -> None:
        """Break all connections between two machines."""
        for direction in self._directions:
            if {direction.sender.driver, direction.target.driver} == {one, other}:
                _reset(direction.target)
        self._forget_dead()

    def process_ended(self, driver: MachineDriver, *, silently: bool) -> None:
        """End the connections of a process; if it lost its power, no peer notices."""
        for direction in self._directions:
            if direction.sender.driver is driver and not silently:
                self._send(direction, None)

    def _is_cut(self, one: MachineDriver, other: MachineDriver) -> bool:
        return (one, other) in self._cuts

    # -- connections ---------------------------------------------------------------------

    def connect(
        self,
        driver: MachineDriver,
        host: str,
        port: int,
        done: Callable[[Stream | OSError], None],
    ) -> None:
        """Begin a connection of a machine to an endpoint."""
        client, loop = End(driver), driver.machine.loop
        assert loop is not None
        found = self._endpoints.get((host, port))
        if found is None:
            loop.call(lambda: done(OSError(f"{host} is not known")))
            return
        server = End(found[0], listener=found[1])
        there, back = Direction(client, server), Direction(server, client)
        stream = client.stream = loop.new_stream(
            lambda data: self._send(there, data), lambda: self._send(there, None)
        )
        stream.connecting = True
        stream.slow = self._chance.random() < SLOW
        self._directions += (there, back)
        loop.call(lambda: done(stream))
        self._plan(lambda: self._establish(client, server))

    def _establish(self, client: End, server: End) -> None:
        if not client.is_alive:
            return
        if self._is_cut(client.driver, server.driver) or self._is_cut(server.driver, client.driver):
            self._waiting.append((client, server))
            return
        assert client.stream is not None
        loop = server.loop = server.driver.machine.loop
        client.stream.connecting = False
        client.driver.make_writable(client.stream)
        if loop is None:
            client.stream.fail(ConnectionRefusedError("nobody listens there"))
            return
        back = next(each for each in self._directions if each.sender is server)
        server.stream = loop.accept_peer(
            server.listener, lambda data: self._send(back, data), lambda: self._send(back, None)
        )
        server.stream.slow = client.stream.slow

    # -- bytes ---------------------------------------------------------------------------

    def _send(self, direction: Direction, data: bytes | None) -> None:
        direction.pieces.append(data)
        self._plan_arrival(direction)

    def _plan_arrival(self, direction: Direction) -> None:
        earliest_ms = self._timeline.now_ms + self._chance.choice(DELAYS_MS)
        direction.arrives_ms = max(direction.arrives_ms, earliest_ms)
        self._timeline.at(direction.arrives_ms, lambda: self._arrive(direction))

    def _arrive(self, direction: Direction) -> None:
        if self._is_cut(direction.sender.driver, direction.target.driver):
            direction.held += 1
            return
        if not direction.pieces:
            return
        data = direction.pieces.popleft()
        target = direction.target
        if not target.is_alive:
            if target.driver.machine.loop is not None and direction.sender.is_alive:
                _reset(direction.sender)
        elif data is None:
            assert target.stream is not None
            target.stream.end()
        else:
            assert target.stream is not None
            target.stream.arrive(data)
        if data is None:
            self._forget_dead()

    def _forget_dead(self) -> None:
        self._directions = [
            each
            for each in self._directions
            if each.pieces or each.sender.is_alive or each.target.is_alive
        ]

    def _plan(self, action: Callable[[], None]) -> None:
        self._timeline.after(self._chance.choice(DELAYS_MS), action)


def _reset(end: End) -> None:
    """Let a process find its connection broken."""
    if end.is_alive:
        assert end.stream is not None
        end.stream.fail(ConnectionResetError("the other side has no such connection"))


class SimConnector:
    """The Connector of one machine."""

    def __init__(self, network: SimNetwork, driver: MachineDriver) -> None:
        self._network = network
        self._driver = driver

    def connect(self, host: str, port: int, done: Callable[[Stream | OSError], None]) -> None:
        self._network.connect(self._driver, host, port, done)
