"""Log start offsets: they never go back, and nothing is removed that retention must keep."""

from __future__ import annotations

from typing import Final

from ottla.sim.cluster_model import Place
from ottla.sim.exchange import Violation
from ottla.sim.moment import Moment

_WEEK_MS: Final = 7 * 24 * 3600 * 1000


def check_start(place: Place, log_start_offset: int, moment: Moment) -> None:
    """A client was told a log start offset."""
    partition = place.partition
    if log_start_offset < partition.start:
        raise Violation(
            f"{partition.name}: the log start went from {partition.start} back to"
            f" {log_start_offset}"
        )
    if log_start_offset > partition.start:
        if not may_have_moved(place, log_start_offset, moment):
            raise Violation(
                f"{partition.name}: the log start moved from {partition.start} to"
                f" {log_start_offset} without a reason"
            )
        partition.move_start(log_start_offset)


def may_have_moved(place: Place, log_start_offset: int, moment: Moment) -> bool:
    """Whether retention, or a DeleteRecords nobody heard of, may have moved the start here."""
    partition = place.partition
    if log_start_offset > partition.acked_end + partition.open_records:
        return False
    if log_start_offset <= partition.start_may_be:
        return True
    return _is_old(place, log_start_offset, moment) or _is_too_large(place, log_start_offset)


def _is_old(place: Place, start: int, moment: Moment) -> bool:
    retention_ms = place.topic.shortest_retention_ms(_WEEK_MS)
    if retention_ms < 0:
        return False
    newest = moment.newest_wall_ms - retention_ms
    partition = place.partition
    return all(
        max(entry.timestamps) < newest for entry in partition.in_range(partition.start, start)
    )


def _is_too_large(place: Place, start: int) -> bool:
    retention_bytes = place.topic.smallest_retention_bytes()
    if retention_bytes < 0:
        return False
    if place.topic.setting("compression.type", "producer") != "producer":
        return True  # the stored sizes are the broker's to know
    partition = place.partition
    left = partition.in_range(start, partition.acked_end)
    size = sum(len(entry.sent.payload) for entry in left)
    size += sum(len(sent.payload) for sent in partition.maybe.values())
    return size >= retention_bytes
