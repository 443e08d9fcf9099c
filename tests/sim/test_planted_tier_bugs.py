"""Bugs planted in the remote tier of a simulated cluster: seeds find each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.remote_tier.copy_task import CopyTask
from ottla.broker.remote_tier.remote_tier import RemoteTier
from ottla.broker.remote_tier.removed_partitions import _Removal
from ottla.broker.remote_tier.tiered_partition import TieredPartition
from ottla.log.log import Log
from ottla.sim.cluster_run.profile import profile_of, tiered_profile
from ottla.sim.cluster_run.run import ClusterRun
from ottla.tiered.metadata_records import RemotePartition, SegmentState
from ottla.tiered.remote_fetch import RemoteLog, RemoteRecords
from ottla.tiered.remote_segments import RemoteSegments
from tests.sim.test_compacted_tier import rewrite_less
from tests.sim.test_planted_bugs import Plant, find

pytestmark = [pytest.mark.timeout(600), pytest.mark.interpreted]
SECONDS = 4


def delete_before_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take all closed segments for copied."""
    follow: Callable[..., None] = TieredPartition._follow

    def hasty(self: TieredPartition, log: Log, segments: RemoteSegments) -> None:
        follow(self, log, segments)
        log.highest_remote_offset = log.active.base_offset - 1

    monkeypatch.setattr(TieredPartition, "_follow", hasty)


def forget_aborted_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell readers of remote records nothing about aborted transactions."""

    def none(self: RemoteLog, offset: int, records: RemoteRecords) -> bytearray:
        return bytearray()

    monkeypatch.setattr(RemoteLog, "aborted", none)


def begin_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a follower that takes its state from the tier leave out some records."""
    begin: Callable[..., None] = Log.begin_after_tier

    def late(self: Log, local_start: int, *rest: Any) -> None:
        begin(self, local_start + 2, *rest)

    monkeypatch.setattr(Log, "begin_after_tier", late)


def lose_what_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace remote segments by one without the records of the last of them."""
    rewrite_less(monkeypatch, lambda group: group[-1:])


def forget_uploads_of_deleted_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete what is readable of a deleted topic, and nothing of an upload under way."""
    delete_next = _Removal._next

    def without_uploads(self: _Removal) -> None:
        segments = self._segments.in_state(SegmentState.COPY_STARTED)
        self._deleted.update(each.segment_id for each in segments)
        delete_next(self)

    monkeypatch.setattr(_Removal, "_next", without_uploads)
    monkeypatch.setattr(_Removal, "_delete_rest", lambda self: self._rest_deleted(None))
    monkeypatch.setattr(CopyTask, "_delete_stored", lambda self: self._ended(False, None))


def delete_by_topic_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete what the store has of a new topic, because one with its name was deleted."""
    is_tiered = RemoteTier.is_tiered
    deleted: set[tuple[RemoteTier, str]] = set()

    def by_name(self: RemoteTier, partition: RemotePartition) -> bool:
        if not is_tiered(self, partition):
            deleted.add((self, partition.topic))
        if (self, partition.topic) not in deleted:
            return True
        self.removed.ended_topics.add(partition.topic_id)
        return False

    monkeypatch.setattr(RemoteTier, "is_tiered", by_name)


@pytest.mark.parametrize(
    ("plant", "first", "seeds"),
    [
        (delete_before_the_copy, 0, 4),
        (forget_aborted_transactions, 20, 40),
        (begin_too_late, 50, 70),
        (lose_what_is_rewritten, 3, 10),
        (forget_uploads_of_deleted_topics, 26, 36),
        (delete_by_topic_name, 26, 36),
    ],
)
def test_a_planted_bug_is_found(
    plant: Plant, first: int, seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    find(plant, tiered_profile, SECONDS, seeds, monkeypatch, first)


def test_tiered_runs_hold_what_can_happen() -> None:
    counts: Counter[str] = Counter()
    for seed in (3, 14):
        profile = tiered_profile(seed)._replace(
            tier_admins=0, temporary_producers=0, fault_pause_ms=(500, 1000)
        )
        run = ClusterRun(seed, SECONDS, profile=profile)
        run.run()
        counts += run.counts
    for name in ("remote copies", "remote reads", "remote cleans", "remote rebuilds"):
        assert counts[name] > 3, counts


def test_mixed_runs_have_tiers_too() -> None:
    tiered = [seed for seed in range(40) if profile_of(seed).tiers]
    assert len(tiered) > 5
    assert any(profile_of(seed).weights["store"] for seed in tiered)
    assert any(profile_of(seed).cleans for seed in tiered)
