"""A client that sends frames that are no requests.

That closes its connection, and disturbs nobody else.
"""

from __future__ import annotations

from ottla.sim.clients.client import Client
from ottla.sim.network.exchange import Exchange


class MalformedClient(Client):
    """Sends what no broker understands."""

    def act(self) -> None:
        body = self._nonsense()
        size = len(body)
        if self.chance.random() < 0.1:
            size = self.chance.choice((-1, 3, 0x7FFFFFFF))
        frame = size.to_bytes(4, "big", signed=True) + body
        self.transmit(Exchange(self.name, -1, -1, -1, None, frame, wants_reply=False))

    def _nonsense(self) -> bytes:
        """Return an unknown API key, an unknown version, or a known request cut short."""
        noise = self.chance.randbytes(self.chance.randint(8, 60))
        match self.chance.randrange(3):
            case 0:
                return b"\x7f\x00" + noise
            case 1:
                return b"\x00\x03\x00\x63" + noise
            case _:
                return b"\x00\x02\x00\x01\x00\x00\x00\x07\xff\xff\xff\xff\xff\xff\x7f"
