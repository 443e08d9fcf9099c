"""The log cleaner: keeps the last record of each key in logs with cleanup.policy=compact.

`check_soon` looks at all such logs (every log.cleaner.backoff.ms) and cleans the dirtiest one that
is due (`cleanable.py`), up to log.cleaner.threads at a time. Each clean has a helper process, which
ends when there is nothing to clean for a minute. A broker without compacted logs has none.

A log that cannot be cleaned is counted, reported once, and left alone until the broker restarts:
one with damaged records, or one whose clean failed three times in a row. The others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from errno import EDQUOT, EMFILE, ENFILE, ENOSPC
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.log.cleaner.clean_run import (
    CleaningAborted,
    CleanRun,
    CleanSettings,
    CleanStats,
    CleanWorld,
    DamagedRecords,
)
from ottla.log.cleaner.cleanable import Cleanable, cleanable, dirtiest, is_roll_due
from ottla.log.cleaner.cleaning_task import TASK
from ottla.log.cleaner.io_throttle import IoThrottle
from ottla.log.damage import DamagedLog
from ottla.log.segment.index_jobs import IndexNotReady
from ottla.model.ids import TopicPartition
from ottla.model.steps import Steps
from ottla.ports import HelperProcesses, TaskFailed

if TYPE_CHECKING:
    from ottla.config.broker_settings.cleaner import CleanerConfig
    from ottla.log.log import Log
    from ottla.log.store.log_store import LogStore

MOST_FAILURES: Final = 3
"""How often in a row a clean may fail before its log counts as uncleanable."""

_LOGS_A_STEP: Final = 50
_FULL: Final = (ENOSPC, EDQUOT, EMFILE, ENFILE)
_CHUNK_BUFFERS: Final = 8
"""How many times log.cleaner.io.buffer.size is looked at together: many batches cost less each."""

_LARGEST_MAP: Final = 2**31 - 1


def clean_settings(config: CleanerConfig) -> CleanSettings:
    """Return the share of one clean of what all cleaner threads have."""
    threads = max(config.log_cleaner_threads, 1)
    return CleanSettings(
        min(config.log_cleaner_dedupe_buffer_size // threads, _LARGEST_MAP),
        config.log_cleaner_io_buffer_load_factor,
        max(_CHUNK_BUFFERS * config.log_cleaner_io_buffer_size // threads, 4096),
    )


class CleanerHost(Protocol):
    """What the cleaner needs of the broker that it runs in."""

    @property
    def helpers(self) -> HelperProcesses: ...

    def run(self, steps: Steps[Any]) -> None:
        """Run steps now and later, a little at a time."""
        ...

    def call_later(self, delay_ms: float, action: Callable[[], None]) -> None: ...

    def serves_clients(self) -> bool:
        """Return True while clients send more than a few requests per second."""
        ...

    def storage_failed(self, log: Log, error: OSError) -> None: ...

    def report(self, message: str) -> None: ...


class LogCleaner:
    """Cleans the compacted logs of a store."""

    def __init__(self, store: LogStore, host: CleanerHost, config: CleanerConfig) -> None:
        self._store = store
        self._host = host
        self._config = config
        self._clock = store.resources.clock
        self._rate = config.log_cleaner_io_max_bytes_per_second
        self._throttle = IoThrottle(self._rate)
        self._is_checking = False
        self._is_wanted_again = False
        self._started = 0
        self._known: dict[TopicPartition, Log] = {}
        """The logs that the sets and dicts of partitions below are about."""
        self._requested: set[TopicPartition] = set()
        self._failures: dict[TopicPartition, int] = {}
        self.running: dict[TopicPartition, CleanRun] = {}
        self.uncleanable: dict[TopicPartition, str] = {}
        """Logs that are left alone, and why."""
        self.last_clean_ms: dict[TopicPartition, int] = {}
        """When each log was last cleaned, in wall time, since the broker started."""
        self.last_stats: CleanStats | None = None
        self.last_check_ms = self._clock.monotonic_ms()
        self.dirtiest_ratio = 0.0
        self.longest_delay_ms = 0
        """How long the latest log is late, by max.compaction.lag.ms, as of the last check."""
        self.cleans = 0
        self.on_cleaned: Callable[[Log], None] = lambda log: None
        """Called with each log that was cleaned."""

    def reconfigure(self, config: CleanerConfig) -> None:
        """Use new settings from the next clean on, and the new rate at once."""
        self._config = config
        rate = config.log_cleaner_io_max_bytes_per_second
        if rate != self._rate:
            self._rate = rate
            self._throttle.change(rate)

    # -- choosing ------------------------------------------------------------------------

    def check_soon(self) -> None:
        """Look for logs to clean now: one may have become due."""
        if self._is_checking:
            self._is_wanted_again = True
        elif self._config.log_cleaner_enable:
            self._is_checking = True
            self._host.run(self._check())

    def request(self, log: Log) -> None:
        """Clean a log next, whatever its ratio, with all that it has now."""
        partition = self._noted(log)
        if partition not in self.running and partition not in self.uncleanable:
            self._requested.add(partition)
            self.check_soon()

    def _check(self) -> Steps[None]:
        """Start the cleans that are due, as far as there are threads for them."""
        self._forget_deleted()
        self.last_check_ms = self._clock.monotonic_ms()
        found: list[Cleanable] = []
        for number, log in enumerate(list(self._store)):
            if log.config.compacts:
                found += self._look_at(log)
            if not number % _LOGS_A_STEP:
                yield
        self.dirtiest_ratio = max((each.dirty_ratio for each in found), default=0.0)
        self.longest_delay_ms = max((each.delay_ms for each in found), default=0)
        for plan in self._due(found):
            if len(self.running) >= self._config.log_cleaner_threads:
                break
            if self._is_current(plan.log):
                for whole in self._with_active_segment(plan):
                    self._begin(whole)
        self._is_checking = False
        if self._is_wanted_again:
            self._is_wanted_again = False
            self.check_soon()

    def _with_active_segment(self, plan: Cleanable) -> list[Cleanable]:
        """Return the plan; one that was asked for with all that the log has now, if there is any.

        The active segment ends only now. Many logs may be asked for while others are cleaned, and
        each check would leave a tiny segment in all of them.
        """
        if plan.log.topic_partition not in self._requested:
            return [plan]
        found = self._look_at(plan.log, is_next=True)
        return [each for each in found if each.cleanable_bytes]

    def _look_at(self, log: Log, *, is_next: bool = False) -> list[Cleanable]:
        """Return what can be cleaned of a log: one element, or none."""
        partition = log.topic_partition
        if partition in self.running or partition in self.uncleanable:
            return []
        try:
            now_ms = self._clock.wall_ms()
            if is_roll_due(log, now_ms) or (is_next and _can_roll(log)):
                log.roll(now_ms)
            found = cleanable(log, now_ms)
        except IndexNotReady:
            return []
        except DamagedLog as error:
            self._leave_alone(log, str(error))
            return []
        except OSError as error:
            self._host.storage_failed(log, error)
            return []
        return [found] if found.total_bytes or partition in self._requested else []

    def _due(self, found: list[Cleanable]) -> Iterator[Cleanable]:
        """Yield the logs to clean: those that were asked for, then the dirtiest.

        Of those that were asked for, the one with most to clean comes first. Others are asked for
        again meanwhile; none of them may wait for ever.
        """
        rest, requested = [], []
        for each in found:
            if each.log.topic_partition not in self._requested:
                rest.append(each)
            elif each.cleanable_bytes or each.log.active.size:
                requested.append(each)
        yield from sorted(requested, key=_requested_bytes, reverse=True)
        while (next_one := dirtiest(rest)) is not None:
            rest.remove(next_one)
            yield next_one

    def _is_current(self, log: Log) -> bool:
        return self._store.get(log.topic_partition) is log

    def _noted(self, log: Log) -> TopicPartition:
        """Return the partition of a log, about which something is noted from now on."""
        partition = log.topic_partition
        if self._known.get(partition) is not log:
            self._forget(partition)
            self._known[partition] = log
        return partition

    def _forget_deleted(self) -> None:
        """Forget logs that are gone, also if the partition has another one: of a new topic."""
        for partition in [each for each, log in self._known.items() if not self._is_current(log)]:
            self._forget(partition)

    def _forget(self, partition: TopicPartition) -> None:
        self._known.pop(partition, None)
        self._requested.discard(partition)
        self.uncleanable.pop(partition, None)
        self.last_clean_ms.pop(partition, None)
        self._failures.pop(partition, None)

    # -- cleaning ------------------------------------------------------------------------

    def _begin(self, plan: Cleanable) -> None:
        threads = max(self._config.log_cleaner_threads, 1)
        settings = clean_settings(self._config)
        self._started += 1
        partition = plan.log.topic_partition
        lanes = {run.lane for run in self.running.values()}
        lane = next(each for each in map(str, range(threads + 1)) if each not in lanes)
        world = CleanWorld(
            partial(self._submit, f"cleaner-{lane}"),
            self._host.call_later,
            partial(self._is_current, plan.log),
            self._host.serves_clients,
            self._throttle,
        )
        clean_id = f"{self._store.resources.random.uuid().hex()}-{self._started}"
        run = CleanRun(clean_id, plan, settings, world)
        run.lane = lane
        self.running[partition] = run
        self._requested.discard(partition)
        self._host.run(self._clean(run))

    def _submit(
        self, lane: str, message: bytes, done: Callable[[bytes | TaskFailed], None]
    ) -> None:
        self._host.helpers.submit(TASK, message, done, lane)

    def _clean(self, run: CleanRun) -> Steps[None]:
        """Clean a log, then look for the next one; after a failure, wait for the next check."""
        log, partition = run.log, run.log.topic_partition
        cleans, left_alone = self.cleans, len(self.uncleanable)
        try:
            cleaned_upto = yield from run.steps()
        except CleaningAborted:
            pass
        except DamagedRecords as damage:
            self._leave_alone(log, str(damage))
        except TaskFailed as failure:
            self._failed(log, str(failure))
        except DamagedLog as error:
            self._leave_alone(log, str(error))
        except OSError as error:
            if error.errno in _FULL:
                self._host.report(f"{partition} cannot be cleaned now: {error}")
            elif self._is_current(log):
                self._host.storage_failed(log, error)
        else:
            if self._is_current(log):
                self._cleaned(run, cleaned_upto)
        del self.running[partition]
        if (cleans, left_alone) != (self.cleans, len(self.uncleanable)):
            self.check_soon()

    def _cleaned(self, run: CleanRun, cleaned_upto: int) -> None:
        log, stats = run.log, run.stats
        log.note_cleaned(cleaned_upto)
        self.cleans += 1
        self.last_stats = stats
        self.last_clean_ms[self._noted(log)] = self._clock.wall_ms()
        self._failures.pop(log.topic_partition, None)
        self.on_cleaned(log)

    def _failed(self, log: Log, reason: str) -> None:
        """Try again at the next check, unless this has happened too often."""
        partition = self._noted(log)
        failures = self._failures[partition] = self._failures.get(partition, 0) + 1
        if failures >= MOST_FAILURES:
            self._leave_alone(log, reason)
        else:
            self._host.report(f"{log.topic_partition} could not be cleaned: {reason}")

    def _leave_alone(self, log: Log, reason: str) -> None:
        self.uncleanable[self._noted(log)] = reason
        self._host.report(
            f"{log.topic_partition} is not compacted any more until the broker restarts: {reason}"
        )


def _requested_bytes(plan: Cleanable) -> int:
    """Return how much a requested clean would read, the active segment included."""
    return plan.cleanable_bytes + plan.log.active.size


def _can_roll(log: Log) -> bool:
    """Return True if the active segment has records, and all of them are committed."""
    is_whole = log.written_end <= log.high_watermark and not log.has_queued
    return bool(log.active.size) and is_whole
