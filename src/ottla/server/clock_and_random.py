"""The operating system's clock and randomness, behind the ports."""

from __future__ import annotations

import os
import time
from base64 import urlsafe_b64encode


class SystemClock:
    """Real time."""

    def wall_ms(self) -> int:
        return int(time.time() * 1000)

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000


class SystemRandom:
    """The operating system's randomness. The module `random` would take a broker a millisecond."""

    def uuid(self) -> bytes:
        while True:
            uuid = os.urandom(16)
            if not urlsafe_b64encode(uuid).startswith(b"-"):
                return uuid

    def below(self, limit: int) -> int:
        assert limit > 0
        return int.from_bytes(os.urandom(8), "big") % limit
