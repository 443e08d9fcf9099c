"""Log start offsets: they never go back, and nothing is removed that retention must keep."""

from __future__ import annotations

from typing import Final

from ottla.sim.judges.conditions import Conditions
from ottla.sim.model.cluster import Place
from ottla.sim.model.partition import Entry
from ottla.sim.network.exchange import Violation

_WEEK_MS: Final = 7 * 24 * 3600 * 1000


def check_start(place: Place, log_start_offset: int, conditions: Conditions) -> None:
    """Check a log start offset that a client was told, and learn it."""
    partition = place.partition
    if log_start_offset < partition.start:
        raise Violation(
            f"{partition.name}: the log start went from {partition.start} back to"
            f" {log_start_offset}"
        )
    if log_start_offset > partition.start:
        if not may_have_moved(place, log_start_offset, conditions):
            raise Violation(
                f"{partition.name}: the log start moved from {partition.start} to"
                f" {log_start_offset} without a reason"
            )
        partition.move_start(log_start_offset)


def may_have_moved(place: Place, log_start_offset: int, conditions: Conditions) -> bool:
    """Return whether retention, or an unanswered DeleteRecords, may have moved the start here."""
    partition = place.partition
    if log_start_offset > partition.acked_end + partition.open_records:
        return False
    if log_start_offset <= partition.start_may_be:
        return True
    return all(
        _is_old(place, entry, conditions) or _is_too_much(place, entry)
        for entry in partition.in_range(partition.start, log_start_offset)
    )


def _is_old(place: Place, entry: Entry, conditions: Conditions) -> bool:
    retention_ms = place.topic.shortest_retention_ms(_WEEK_MS)
    return retention_ms >= 0 and max(entry.timestamps) < conditions.newest_wall_ms - retention_ms


def _is_too_much(place: Place, entry: Entry) -> bool:
    """Return True if the batches after this one may reach retention.bytes without it."""
    retention_bytes = place.topic.smallest_retention_bytes()
    if retention_bytes < 0:
        return False
    if place.topic.is_recompressed:
        return True
    partition = place.partition
    after = partition.in_range(entry.next_offset, partition.acked_end)
    size = sum(len(each.sent.payload) for each in after)
    size += sum(len(sent.payload) for sent in partition.maybe.values())
    return size >= retention_bytes
