"""A leader that the controller does not answer, and whose writes no follower takes.

Such a broker is probably cut off, and others lead its partitions already. Clients that still
reach it would wait with acks=all until their requests time out, and then try again here: a timeout
tells them nothing about leaders. So writes that wait while the high watermark stands still are
refused with NOT_LEADER_OR_FOLLOWER, and clients ask for the leader. They may ask this broker, the
only one that they are connected to. So it leaves itself out of answers to Metadata from then on, as
others do once the controller has fenced it, and clients turn to them.

If only the controllers are away, followers go on to fetch, and nothing is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.replication.partition import Partition
from ottla.replication.timers import Timer

if TYPE_CHECKING:
    from ottla.broker.node import Node


class LostContact:
    """Looks at waiting writes between `begin` and `end`, once in each heartbeat interval."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.is_cut_off = False
        """Whether waiting writes had to be refused since contact was lost."""
        self._timer: Timer | None = None
        self._waiting: dict[Partition, int] = {}
        """Partitions with waiting writes, and their high watermarks when last looked at."""

    def begin(self) -> None:
        """Take note that the controller has not answered for a whole session."""
        if self._timer is None:
            self._check()

    def end(self) -> None:
        """Take note that the controller answers again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._waiting = {}
            self._set_cut_off(False)

    def _check(self) -> None:
        before, self._waiting = self._waiting, {}
        for partition in list(self._node.topics):
            leader, log = partition.leader, partition.log
            if leader is None or log is None or not leader.has_uncommitted:
                continue
            if before.get(partition) == log.high_watermark:
                self._set_cut_off(True)
                leader.refuse_uncommitted()
            else:
                self._waiting[partition] = log.high_watermark
        interval_ms = self._node.config.membership.broker_heartbeat_interval_ms
        next_ms = self._node.clock.monotonic_ms() + interval_ms
        self._timer = self._node.timers.at(next_ms, self._check)

    def _set_cut_off(self, is_cut_off: bool) -> None:
        if is_cut_off != self.is_cut_off:
            self.is_cut_off = is_cut_off
            self._node.metadata_cache.clear()
