"""Which log is cleaned when, and what happens if one cannot be cleaned."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.config.broker_settings.cleaner import CleanerConfig
from ottla.config.topic import LogConfig
from ottla.log.cleaner.cleanable import cleanable
from ottla.log.cleaner.log_cleaner import LogCleaner
from ottla.log.file_pool import FilePool
from ottla.log.log import Log
from ottla.log.store.log_store import LogStore
from ottla.memory_files import MemoryFiles
from ottla.model.ids import TopicPartition
from ottla.testing.fakes import FakeClock, FakeRandom, InlineBackground
from tests.support.cleaner import FakeHost, InlineHelpers, fill, keyed, seen
from tests.support.log import NOW, TOPIC_ID, append_all

COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}))


class Cleaners:
    """A store with a cleaner that does everything at once."""

    def __init__(self, **settings: Any) -> None:
        self.files = MemoryFiles()
        self.clock = FakeClock()
        self.store = self.new_store()
        self.helpers = InlineHelpers()
        self.host = FakeHost(self.helpers)
        config = CleanerConfig(**settings)
        self.cleaner = LogCleaner(self.store, self.host, config)

    def new_store(self) -> LogStore:
        store = LogStore(
            self.files,
            ["/data"],
            background=InlineBackground(),
            clock=self.clock,
            random=FakeRandom(lambda limit: limit - 1),
            pool=FilePool(self.files, 64),
        )
        store.load(lambda partition: COMPACT)
        return store

    def log(self, name: str, config: LogConfig = COMPACT) -> Log:
        return self.store.create(TopicPartition(name, 0), TOPIC_ID, config)

    def dirty(self, name: str, config: LogConfig = COMPACT) -> Log:
        """Return a log that is wholly dirty."""
        log = self.log(name, config)
        fill(log, [keyed(("a", "1"))], [keyed(("a", "2"))])
        return log


def offsets(log: Log) -> list[int]:
    return [record.offset for record in seen(log)]


def test_only_compacted_logs_are_cleaned() -> None:
    them = Cleaners()
    compacted, deleting = them.dirty("c"), them.dirty("d", LogConfig())
    both = them.dirty("both", LogConfig(cleanup_policy=frozenset({"compact", "delete"})))
    them.cleaner.check_soon()
    assert [offsets(log) for log in (compacted, deleting, both)] == [[1], [0, 1], [1]]
    assert them.cleaner.cleans == 2
    assert set(them.helpers.lanes) == {"cleaner-0"}


def test_without_compacted_logs_no_helper_is_used() -> None:
    them = Cleaners()
    them.dirty("d", LogConfig())
    them.cleaner.check_soon()
    assert them.helpers.lanes == []


def test_a_log_below_its_dirty_ratio_waits() -> None:
    them = Cleaners()
    log = them.dirty("c")
    them.cleaner.check_soon()
    fill(log, [keyed(("b", "1"))])
    assert cleanable(log, NOW).dirty_ratio == pytest.approx(0.5, abs=0.01)
    log.reconfigure(COMPACT.replace(min_cleanable_dirty_ratio=0.6))
    them.cleaner.check_soon()
    assert them.cleaner.cleans == 1
    log.reconfigure(COMPACT.replace(min_cleanable_dirty_ratio=0.4))
    them.cleaner.check_soon()
    assert them.cleaner.cleans == 2
    assert log.cleaned_upto == 3


def test_a_clean_that_was_asked_for_takes_the_active_segment_too() -> None:
    them = Cleaners()
    log = them.log("c", COMPACT.replace(min_cleanable_dirty_ratio=1.0))
    append_all(log, keyed(("a", "1")), keyed(("a", "2")))
    them.cleaner.check_soon()
    assert offsets(log) == [0, 1]
    them.cleaner.request(log)
    assert offsets(log) == [1]
    assert log.cleaned_upto == 2


def test_a_clean_that_has_to_wait_leaves_no_tiny_segments() -> None:
    them = Cleaners(log_cleaner_threads=0)
    log = them.log("c", COMPACT.replace(min_cleanable_dirty_ratio=1.0))
    for number in range(5):
        append_all(log, keyed(("a", str(number))))
        them.cleaner.request(log)
    assert len(log.segments) == 1
    them.cleaner.reconfigure(CleanerConfig())
    them.cleaner.check_soon()
    assert offsets(log) == [4]
    assert log.cleaned_upto == 5


def test_young_records_are_not_cleaned() -> None:
    them = Cleaners()
    log = them.log("c", COMPACT.replace(min_compaction_lag_ms=1000))
    fill(
        log,
        [keyed(("a", "1"), timestamp=NOW - 2000)],
        [keyed(("a", "2"), timestamp=NOW - 1500)],
        [keyed(("a", "3"), timestamp=NOW - 500)],
    )
    them.cleaner.check_soon()
    assert offsets(log) == [1, 2]
    them.clock.now_ms += 600
    log.reconfigure(log.config.replace(min_cleanable_dirty_ratio=0.1))
    them.cleaner.check_soon()
    assert offsets(log) == [2]


def test_old_records_are_cleaned_whatever_the_ratio_and_their_segment_is_rolled() -> None:
    them = Cleaners()
    config = COMPACT.replace(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000)
    log = them.log("c", config)
    append_all(log, keyed(("a", "1")), keyed(("a", "2")))
    them.cleaner.check_soon()
    assert len(log.segments) == 1
    them.clock.now_ms += 1002
    them.cleaner.check_soon()
    assert offsets(log) == [1]
    assert log.segments.base_offsets == [0, 2]


@pytest.mark.parametrize("timestamp", [0, NOW + 3_600_000], ids=["none", "in the future"])
def test_a_segment_whose_timestamps_cannot_be_right_is_rolled_by_the_clock(timestamp: int) -> None:
    """`ottla compact` and `ottla erase` would wait for it for as long as the producer is ahead."""
    them = Cleaners()
    log = them.log("c", COMPACT.replace(max_compaction_lag_ms=1000))
    for value in ("1", "2"):
        append_all(log, keyed(("a", value), timestamp=timestamp))
    them.clock.now_ms += 1000
    them.cleaner.check_soon()
    assert len(log.segments) == 1
    them.clock.now_ms += 1
    them.cleaner.check_soon()
    assert offsets(log) == [1]
    assert log.segments.base_offsets == [0, 2]


def test_a_damaged_log_is_left_alone_and_others_go_on() -> None:
    them = Cleaners()
    damaged, good = them.dirty("damaged"), them.dirty("good")
    file = them.files.open(damaged.segments[0].path(".log"), writable=True)
    file.pwritev([b"\xff"], file.size() - 3)
    for _ in range(3):
        them.cleaner.check_soon()
    assert offsets(good) == [1]
    assert list(them.cleaner.uncleanable) == [damaged.topic_partition]
    assert len(them.host.reports) == 1
    assert "damaged-0 is not compacted any more" in them.host.reports[0]
    assert damaged.cleaned_upto == 0
    them.store.delete(damaged.topic_partition)
    them.cleaner.check_soon()
    assert not them.cleaner.uncleanable


def test_a_new_topic_with_the_name_of_a_damaged_one_is_cleaned() -> None:
    them = Cleaners()
    damaged = them.dirty("t")
    file = them.files.open(damaged.segments[0].path(".log"), writable=True)
    file.pwritev([b"\xff"], file.size() - 3)
    them.cleaner.check_soon()
    assert list(them.cleaner.uncleanable) == [damaged.topic_partition]
    them.store.delete(damaged.topic_partition)
    log = them.dirty("t")
    them.cleaner.check_soon()
    assert offsets(log) == [1]
    assert not them.cleaner.uncleanable
    them.store.delete(log.topic_partition)
    again = them.log("t")
    them.cleaner.request(again)
    assert not them.cleaner.last_clean_ms, "this one was not cleaned yet"


def test_a_helper_that_fails_is_tried_again() -> None:
    them = Cleaners()
    log = them.dirty("c")
    them.helpers.failures = 2
    them.cleaner.check_soon()
    assert offsets(log) == [0, 1]
    assert len(them.host.reports) == 1
    them.cleaner.check_soon()
    assert offsets(log) == [1]


def test_a_log_that_fails_every_time_is_left_alone() -> None:
    them = Cleaners()
    log = them.dirty("c")
    them.helpers.failures = 1000
    for _ in range(3):
        assert not them.cleaner.uncleanable
        them.cleaner.check_soon()
    assert list(them.cleaner.uncleanable) == [log.topic_partition]
    assert offsets(log) == [0, 1]


def test_keys_of_one_batch_that_do_not_fit_into_the_map() -> None:
    them = Cleaners(log_cleaner_dedupe_buffer_size=1000)
    log = them.log("c")
    fill(log, [keyed(*((str(number), "v") for number in range(100)))])
    them.cleaner.check_soon()
    assert "log.cleaner.dedupe.buffer.size" in them.cleaner.uncleanable[log.topic_partition]


def test_the_cleaned_offset_survives_a_restart_and_not_a_new_topic() -> None:
    them = Cleaners()
    log = them.dirty("c")
    them.cleaner.check_soon()
    them.store.shutdown()
    content = them.files.open("/data/cleaner-offset-checkpoint").pread(100, 0)
    assert content == b"0\n1\nc 0 2\n"
    them.store = them.new_store()
    again = them.store.get(log.topic_partition)
    assert again is not None
    assert again.cleaned_upto == 2
    them.store.delete(log.topic_partition)
    assert them.log("c").cleaned_upto == 0


def test_a_checkpoint_beyond_the_log_counts_as_none() -> None:
    them = Cleaners()
    log = them.dirty("c")
    log.cleaned_upto = 100
    assert cleanable(log, NOW).first_dirty_offset == 0
    log.cleaned_upto = 1
    log.advance_log_start(2)
    assert cleanable(log, NOW).first_dirty_offset == 2


def test_a_disabled_cleaner_does_nothing() -> None:
    them = Cleaners(log_cleaner_enable=False)
    log = them.dirty("c")
    them.cleaner.check_soon()
    assert offsets(log) == [0, 1]


def test_compaction_and_retention_together() -> None:
    them = Cleaners()
    config = LogConfig(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1000)
    log = them.log("both", config)
    fill(log, [keyed(("a", "1"), timestamp=NOW - 5000)], [keyed(("b", "1")), keyed(("b", "2"))])
    them.cleaner.check_soon()
    assert offsets(log) == [0, 2]
    list(them.store.run_retention(NOW + 100))
    assert offsets(log) in ([2], [0, 2])  # one segment holds both now
    list(them.store.run_retention(NOW + 1100))
    assert offsets(log) == []


def test_of_the_logs_that_were_asked_for_the_one_with_most_to_clean_comes_first() -> None:
    them = Cleaners(log_cleaner_threads=0)
    config = COMPACT.replace(min_cleanable_dirty_ratio=1.0)
    logs = [them.log(f"c{number}", config) for number in range(4)]
    for log, count in zip(logs, (2, 5, 3, 4), strict=True):
        append_all(log, *(keyed(("a", str(number))) for number in range(count)))
        them.cleaner.request(log)
    cleaned: list[Log] = []

    def ask_again(log: Log) -> None:
        cleaned.append(log)
        append_all(logs[0], keyed(("a", "again")))
        if len(cleaned) < 4:
            them.cleaner.request(logs[0])

    them.cleaner.on_cleaned = ask_again
    them.cleaner.reconfigure(CleanerConfig())
    them.cleaner.check_soon()
    assert set(cleaned[:4]) == set(logs), "one that is asked for again and again is not alone"
    assert cleaned[0] is logs[1]
