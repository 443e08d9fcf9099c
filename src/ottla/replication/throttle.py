"""Limits the bandwidth of replication (KIP-73), for the replicas that settings name.

The rates are broker settings (leader.replication.throttled.rate, follower...), the replicas are
settings of topics (leader.replication.throttled.replicas). As in Kafka, replicas in sync are
never held back, but their bytes count. A transfer may exceed what is left; later transfers then
wait until the rate holds again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ottla.replication.partition import Partition

UNLIMITED: Final = 2**63 - 1
BURST_MS: Final = 1000
"""The rate of this time may be saved up while nothing is transferred."""
LONGEST_WAIT_MS: Final = 1000
"""The longest wait before another look at the rate, which may have changed."""
_ALL: Final = "*"


class RateLimit:
    """Bytes a second, with what is left of them."""

    __slots__ = ("_left", "_rate", "_updated_ms")

    def __init__(self, rate: int, now_ms: float) -> None:
        self._rate = rate
        self._left = rate * BURST_MS / 1000
        self._updated_ms = now_ms

    @property
    def rate(self) -> int:
        return self._rate

    def change(self, rate: int, now_ms: float) -> None:
        """Use another rate from now on."""
        self._refill(now_ms)
        self._rate = rate
        self._left = min(self._left, rate * BURST_MS / 1000)

    def charge(self, size: int, now_ms: float) -> None:
        """Count bytes that were transferred."""
        self._refill(now_ms)
        self._left -= size

    def wait_ms(self, now_ms: float) -> float:
        """Return how long to wait until more may be transferred; 0 if it may be now."""
        self._refill(now_ms)
        if self._left > 0:
            return 0.0
        if self._rate == 0:
            return LONGEST_WAIT_MS
        return min(max(1.0, -self._left * 1000 / self._rate), LONGEST_WAIT_MS)

    def _refill(self, now_ms: float) -> None:
        passed_ms = max(0.0, now_ms - self._updated_ms)
        self._updated_ms = now_ms
        most = self._rate * BURST_MS / 1000
        self._left = min(self._left + self._rate * passed_ms / 1000, most)


def rate_limit(current: RateLimit | None, rate: int, now_ms: float) -> RateLimit | None:
    """Return the limit for a rate that may have changed; None if there is none."""
    if rate == UNLIMITED:
        return None
    if current is None:
        return RateLimit(rate, now_ms)
    if current.rate != rate:
        current.change(rate, now_ms)
    return current


class ThrottledReplicas:
    """Which replicas of this broker a setting of their topics names."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._parsed: dict[str, tuple[tuple[str, ...], Collection[int]]] = {}
        """The partitions of each topic that are named, and the setting that says so."""

    def has(self, partition: Partition, setting: tuple[str, ...]) -> bool:
        """Return True if a setting names the replica of a partition on this broker."""
        if not setting:
            return False
        if setting[0] == _ALL:
            return True
        name = partition.topic.name
        parsed = self._parsed.get(name)
        if parsed is None or parsed[0] is not setting:
            parsed = self._parsed[name] = setting, self._parse(setting)
        return partition.index in parsed[1]

    def _parse(self, setting: tuple[str, ...]) -> frozenset[int]:
        found = (text.split(":") for text in setting)
        return frozenset(int(index) for index, broker in found if int(broker) == self._broker_id)
