"""The operating system's clock and randomness, behind the ports."""

from __future__ import annotations

import os
import random
import time
from base64 import urlsafe_b64encode


class SystemClock:
    """Real time."""

    def wall_ms(self) -> int:
        return int(time.time() * 1000)

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000


class SystemRandom:
    """Ids from the operating system's randomness, jitter from a seeded generator."""

    def __init__(self) -> None:
        self._random = random.Random(os.urandom(16))

    def uuid(self) -> bytes:
        while True:
            uuid = os.urandom(16)
            if not urlsafe_b64encode(uuid).startswith(b"-"):
                return uuid

    def below(self, limit: int) -> int:
        return self._random.randrange(limit)
