"""The messages of all brokers in this process, for the report of a failed test."""

from __future__ import annotations

import threading
import time
from collections import deque

_KEPT = 1_000


class BrokerLog:
    """The last thousand messages. Brokers add theirs from threads of their own.

    `count` is the number of all messages so far, so that a test can ask for those since its start.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: deque[str] = deque(maxlen=_KEPT)
        self.count = 0

    def add(self, message: str) -> None:
        """Remember a message with the time of day."""
        now = time.time()
        stamp = time.strftime("%H:%M:%S", time.localtime(now))
        with self._lock:
            self.count += 1
            self._messages.append(f"[{stamp},{int(now * 1000) % 1000:03d}] {message}")

    def since(self, count: int) -> list[str]:
        """Return the messages that came after `count` had this value."""
        with self._lock:
            new = min(self.count - count, len(self._messages))
            return list(self._messages)[len(self._messages) - new :]


BROKER_LOG = BrokerLog()
