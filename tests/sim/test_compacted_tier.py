"""A compacted topic in the remote tier of three brokers that crash, with a store that fails.

A reader from the start finds, for each key, the last value that was acknowledged, or one that
was written after it. In the end the store has no objects that nobody knows, and each
replica finds the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.log.log import Log
from ottla.records.batch import scan
from ottla.records.record import records_of
from ottla.tiered import remote_cleanable, segment_files
from ottla.tiered.metadata_records import SegmentMetadata, SegmentState
from ottla.tiered.remote_segments import RemoteSegments
from tests.sim.test_remote_tier import TOPIC_CONFIG, TieredCluster

KEYS = [b"k%d" % number for number in range(14)]
COMPACTED_CONFIG = {
    **TOPIC_CONFIG,
    "cleanup.policy": "compact",
    "delete.retention.ms": "500",
    "file.delete.delay.ms": "300",
}
FINISHED = SegmentState.COPY_FINISHED
RATIOS = ("0.01", "0.4", "0.7")
"""With a high one, remote cleans are rare, and local cleans are not."""
CLEANER_SETTINGS = {"log.cleaner.backoff.ms": "200"}


class CompactedCluster(TieredCluster):
    """The cluster, and what each key may have."""

    def __init__(self, seed: int) -> None:
        ratio = RATIOS[seed % len(RATIOS)]
        config = {**COMPACTED_CONFIG, "min.cleanable.dirty.ratio": ratio}
        super().__init__(seed, config, CLEANER_SETTINGS)
        self.possible: dict[bytes, set[bytes | None]] = {key: {None} for key in KEYS}
        self.rewrites = 0

    def produce(self) -> None:
        """Write a value or a tombstone; note what its key may have then."""
        leader = self.leader()
        if leader is None:
            self.cluster.run_for(500)
            return
        self.written += 1
        key = self.chance.choice(KEYS)
        value = None if self.chance.random() < 0.25 else b"%d" % self.written * 20
        self.possible[key].add(value)  # it may be there, even if nobody hears of it
        answer = self.write(leader, key, value)
        if answer.error_code == 0:
            self.possible[key] = {value}
            self.acknowledged[answer.base_offset] = value or b""

    def step(self) -> None:
        super().step()
        self.count_rewrites()

    def count_rewrites(self) -> None:
        for number in self.running:
            tier, partition = self.cluster.node(number).tier, self.partition(number)
            if tier is not None and partition in tier.partitions:
                compaction = tier.partitions[partition].compaction
                self.rewrites += compaction.cleans
                compaction.cleans = 0

    def read(self, number: int) -> dict[int, tuple[bytes | None, bytes | None]]:
        """Read the whole log from a replica."""
        partition = self.partition(number)
        assert partition is not None
        log = partition.online_log()
        offset, found = log.log_start_offset, dict[int, tuple[bytes | None, bytes | None]]()
        attempts = 0
        while offset < log.high_watermark:
            records = self.fetch(number, offset)
            before = offset
            for batch in scan(records, 0, len(records)):
                for record in records_of(records[batch.position : batch.end]):
                    assert record.offset not in found
                    if record.offset >= offset:
                        found[record.offset] = record.key, record.value
                offset = batch.next_offset
            attempts = 0 if offset > before else attempts + 1
            assert attempts < 50, f"nothing comes at offset {offset}: {log!r}"
        assert list(found) == sorted(found)
        return found

    def check(self) -> None:
        """Read all replicas; each key has what it may have."""
        self.settle()
        self.cluster.run_until(self._know_what_is_committed)
        for number in self.running:
            found = self.read(number)
            table = dict(found.values())
            for key, values in self.possible.items():
                assert table.get(key) in values, (
                    f"{key!r} is {table.get(key)!r} on {number}, not one of {values}"
                )
        for key in KEYS:  # what was not acknowledged is there now, or never
            self.possible[key] = {table.get(key)}

    def _know_what_is_committed(self) -> bool:
        """Return True if followers have heard of the high watermark."""
        partitions = [self.partition(number) for number in self.running]
        logs = [None if partition is None else partition.log for partition in partitions]
        return len({log and log.high_watermark for log in logs}) == 1

    def _is_copied(self) -> bool:
        leader = self.leader()
        if leader is None:
            return False
        log = self.log
        tier, partition = self.cluster.node(leader).tier, self.partition(leader)
        assert tier is not None
        assert partition is not None
        segments = tier.partitions[partition].segments
        now_ms = self.cluster.node(leader).wall_ms
        if segments is None:
            return False
        plan = remote_cleanable.remote_cleanable(log, segments, now_ms)
        return (
            all(each.state == FINISHED for each in segments.segments.values())
            and not segments.replaced
            and tier.cleaning is None
            and segment_files.next_to_copy(log, log.highest_remote_offset) is None
            and (plan is None or not plan.is_due(log, now_ms))
        )


def run(seed: int, steps: int = 30) -> CompactedCluster:
    case = CompactedCluster(seed)
    for number in range(steps):
        case.step()
        if number % 10 == 9:
            case.check()
    for _ in range(10):
        case.produce()
    case.check()
    case.check_store()
    case.check()
    case.count_rewrites()
    return case


def run_all(seeds: range) -> list[CompactedCluster]:
    return [run(seed) for seed in seeds]


def test_each_key_has_its_last_value() -> None:
    cases = run_all(range(3))
    assert sum(case.rewrites for case in cases) > 3
    assert sum(len(case.acknowledged) for case in cases) > 90


# -- planted bugs ------------------------------------------------------------------------


def remove_tombstones_that_the_remote_part_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let local cleans remove tombstones as in a topic that is not tiered."""
    monkeypatch.setattr(Log, "keeps_deletions_from", property(lambda self: 2**63 - 1))


def rewrite_less(
    monkeypatch: pytest.MonkeyPatch, left_out_of: Callable[[list[Any]], list[Any]]
) -> None:
    """Replace a group of remote segments by one without the records of some of them."""
    from ottla.broker.remote_tier.remote_clean import RemoteClean

    filter_part: Callable[..., Any] = RemoteClean._filter
    rewrite: Callable[..., Any] = RemoteClean._rewrite
    left_out: list[object] = []

    def rewrite_some(self: RemoteClean, group: list[Any], end_offset: int) -> Any:
        left_out[:] = left_out_of(group)
        yield from rewrite(self, group, end_offset)

    def skip(self: RemoteClean, part: object, output: Any) -> Any:
        if part not in left_out:
            yield from filter_part(self, part, output)

    monkeypatch.setattr(RemoteClean, "_rewrite", rewrite_some)
    monkeypatch.setattr(RemoteClean, "_filter", skip)


def forget_the_last_segment_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewrite all segments of a group but the last one, and replace it as well."""
    rewrite_less(monkeypatch, lambda group: group[1:][-1:])


def replace_segments_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take segments for replaced when the upload of the new one begins."""
    add: Callable[..., bool] = RemoteSegments._add

    def hasty(self: RemoteSegments, segment: SegmentMetadata) -> bool:
        for segment_id in segment.replaces:
            if segment_id in self._pieces:
                self._close(self.segments[segment_id])
                self.replaced[segment_id] = segment.event_timestamp_ms
        return add(self, segment._replace(replaces=()))

    monkeypatch.setattr(RemoteSegments, "_add", hasty)


@pytest.mark.parametrize(
    "plant",
    [
        remove_tombstones_that_the_remote_part_needs,
        forget_the_last_segment_of_a_group,
        replace_segments_too_early,
    ],
)
def test_planted_bugs_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        run_all(range(20, 44))
