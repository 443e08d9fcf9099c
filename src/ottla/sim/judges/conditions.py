"""Under which conditions answers are judged: the time, and what is wrong with the disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.sim.disk.faults import UNLIMITED, Volume
from ottla.sim.machine import Machine
from ottla.sim.network.exchange import Exchange
from ottla.wire.messages.delete_topics import DeleteTopicsRequest

_FULL: Final = UNLIMITED // 2
_RETRY_MS: Final = 2500.0
"""How long after a full disk a partition may be without a log."""


class Conditions:
    """What a judge needs to know besides what clients were told."""

    def __init__(self, machine: Machine, properties: Mapping[str, str]) -> None:
        self._machine = machine
        self.producer_expiration_ms = int(properties["producer.id.expiration.ms"])
        self.member_timeout_ms = int(properties["group.consumer.session.timeout.ms"])
        """How long a member of a KIP-848 group may be silent without being removed."""
        self.newest_wall_ms = 0
        """The latest the wall clock ever showed: it may have been set back since."""
        self._broken: set[str] = set()
        self._was_full_ms = -_RETRY_MS
        self._metadata_full_ms = -_RETRY_MS
        self._began_full = False
        """Whether the broker may have found no room to open logs when it started."""

    @property
    def wall_ms(self) -> int:
        return self._machine.clock.wall_ms()

    @property
    def monotonic_ms(self) -> float:
        return self._machine.clock.monotonic_ms()

    def offsets_log_end(self, group_id: str) -> int:
        """Return where the log that has the offsets of a group ends."""
        return self._machine.offsets_log_end(group_id)

    def is_being_deleted(self, name: str, topic_id: bytes) -> bool:
        """Return True if a request deletes this topic and has no reply yet."""
        loop = self._machine.loop
        return loop is not None and any(
            deletes(handled.exchange, name, topic_id) for handled in loop.recorder.open_requests()
        )

    def look(self) -> None:
        """Take note of what is wrong now."""
        self.newest_wall_ms = max(self.newest_wall_ms, self.wall_ms)
        for volume in self._machine.faults.volumes:
            if volume.is_broken:
                self._broken.add(volume.path)
        if self.is_full:
            self._was_full_ms = self.monotonic_ms
        if self._machine.faults.volumes[0].free_bytes < _FULL:
            self._metadata_full_ms = self.monotonic_ms

    def process_started(self) -> None:
        """Begin with a new process: forget what failed in the last one."""
        self._broken.clear()
        self.look()
        self._began_full = self.is_full

    @property
    def io_errors(self) -> bool:
        """Whether anything but a full disk has failed since the broker started."""
        return bool(self._broken)

    @property
    def is_full(self) -> bool:
        return any(volume.free_bytes < _FULL for volume in self._machine.faults.volumes)

    def may_fail(self, topic: str, partition_index: int) -> bool:
        """Return whether the disk that holds a partition gives reason for storage errors."""
        holders = self._machine.holders(topic, partition_index)
        may_wait = not holders or self._began_full
        if may_wait and self._machine.clock.monotonic_ms() < self._was_full_ms + _RETRY_MS:
            return True  # it has no log yet, and gets one with the next attempt
        return any(
            self._is_faulty(volume)
            for volume in self._machine.faults.volumes
            if volume.path in holders or not holders
        )

    def metadata_may_fail(self, since_ms: float) -> bool:
        """Return the same for the metadata log, which lies in the first directory.

        It may be written off the loop, so the disk may be in order again when the answer comes.
        """
        is_faulty = self._is_faulty(self._machine.faults.volumes[0])
        return is_faulty or self._metadata_full_ms >= since_ms

    def _is_faulty(self, volume: Volume) -> bool:
        return volume.path in self._broken or volume.free_bytes < _FULL


def deletes(exchange: Exchange, name: str, topic_id: bytes) -> bool:
    """Return True if a request deletes this topic, by its name or id."""
    request = exchange.request
    if not isinstance(request, DeleteTopicsRequest):
        return False
    by_id = any(topic.topic_id == topic_id for topic in request.topics)
    return by_id or name in request.topic_names or any(t.name == name for t in request.topics)
