"""What the engine asks of a broker. `ottla.broker.node.Node` is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ottla.broker.connection import Connection
from ottla.replication.timers import Timers


class RequestHandler(Protocol):
    """Takes requests, and settles them at the end of a wake-up."""

    timers: Timers
    report: Callable[[str], None]
    ready: list[Connection]
    """Connections that got a reply after their request had been handled."""
    put_off: list[Callable[[], None]]
    """What is done when all replies of the wake-up are sent."""

    @property
    def monotonic_ms(self) -> float:
        """The time of the current wake-up."""
        ...

    def handle(
        self, connection: Connection, buffer: bytearray, view: memoryview, start: int, end: int
    ) -> None:
        """Take the request frame in [start, end); raise DecodeError if it is not one."""
        ...

    def settle_replies(self) -> None:
        """Write what was appended, and make the replies final."""
        ...

    def run_put_off(self) -> None:
        """Do what was put off. `settle_replies` must follow."""
        ...

    def close_connection(self, connection: Connection) -> None:
        """Forget the requests of a connection that was closed."""
        ...
