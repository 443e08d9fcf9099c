"""When the remote part of a log is cleaned, and what happens if a clean fails.

One clean runs at a time on a broker. One that was aborted, because this broker stopped leading or
because segments have changed, is begun again soon. One that failed is tried again after a while. If
records are damaged, or the keys of a batch do not fit into the map, the remote part is left alone
until the broker restarts.
"""

from __future__ import annotations

from errno import EDQUOT, EMFILE, ENFILE, ENOSPC
from typing import TYPE_CHECKING, Final

from ottla.log.damage import DamagedLog
from ottla.log.log import Log
from ottla.model.steps import Steps
from ottla.ports import ObjectStoreError, TaskFailed
from ottla.tiered.remote_cleanable import RemoteCleanable, remote_cleanable
from ottla.tiered.remote_segments import RemoteSegments

if TYPE_CHECKING:
    from ottla.broker.remote_tier.copy_task import CopyTask
    from ottla.broker.remote_tier.remote_clean import RemoteClean
    from ottla.broker.remote_tier.tiered_partition import TieredPartition

FIRST_RETRY_MS: Final = 1_000
LONGEST_RETRY_MS: Final = 300_000
_FULL: Final = (ENOSPC, EDQUOT, EMFILE, ENFILE)


class RemoteCompaction:
    """The cleans of the remote part of one replica, while it leads."""

    def __init__(self, owner: TieredPartition) -> None:
        self._owner = owner
        self._tier = owner.tier
        self.running: RemoteClean | None = None
        self.uncleanable_reason: str | None = None
        """Why the remote part is left alone, if it is."""
        self.cleans = 0
        self._failures = 0
        self._not_before_ms = 0.0

    def metadata_changed(self, segments: RemoteSegments) -> None:
        """Tell the copy of a rewritten segment what the metadata says."""
        if self.copy is not None:
            self.copy.metadata_changed(segments)

    @property
    def copy(self) -> CopyTask | None:
        """The copy of a rewritten segment that is under way."""
        return None if self.running is None else self.running.copy

    def is_copying(self, segment_id: bytes) -> bool:
        """Return True if this is the segment that is being written."""
        return self.copy is not None and self.copy.segment.segment_id == segment_id

    def check(self, log: Log, segments: RemoteSegments) -> None:
        """Begin a clean if it is due, and no other one runs."""
        config = self._tier.node.config.cleaner
        if (
            self._tier.cleaning is not None
            or self.uncleanable_reason is not None
            or not config.log_cleaner_enable
            or self._tier.now_ms() < self._not_before_ms
        ):
            return
        now_ms = self._tier.node.clock.wall_ms()
        try:
            plan = remote_cleanable(log, segments, now_ms)
            if plan is None or not plan.is_due(log, now_ms):
                return
        except DamagedLog:
            return  # the local cleaner leaves it alone
        except OSError as error:
            self._tier.node.storage_failed(self._owner.partition, error)
            return
        self._begin(log, plan)

    def _begin(self, log: Log, plan: RemoteCleanable) -> None:
        from ottla.broker.remote_tier.remote_clean import RemoteClean
        from ottla.log.cleaner.log_cleaner import clean_settings

        settings = clean_settings(self._tier.node.config.cleaner)
        self.running = self._tier.cleaning = RemoteClean(self._owner, log, plan, settings)
        self._tier.node.sliced_work.run(self._run(self.running))

    def _run(self, clean: RemoteClean) -> Steps[None]:
        from ottla.log.cleaner.clean_run import CleaningAborted, DamagedRecords

        try:
            yield from clean.steps()
        except CleaningAborted:
            self._wait(FIRST_RETRY_MS)
        except DamagedRecords as damage:
            self._leave_alone(str(damage))
        except (TaskFailed, ObjectStoreError) as error:
            self._failed(error)
        except OSError as error:
            if error.errno in _FULL:
                self._failed(error)
            else:
                self._wait(FIRST_RETRY_MS)
                self._tier.node.storage_failed(self._owner.partition, error)
        else:
            self.cleans += 1
            self._failures = 0
            self._tier.metrics.cleans += 1
        self._tier.metrics.cleaned_bytes_read += clean.bytes_read
        self._tier.metrics.cleaned_bytes_written += clean.bytes_written
        self.running = self._tier.cleaning = None
        self._tier.refresh_soon()

    def _wait(self, delay_ms: float) -> None:
        self._not_before_ms = self._tier.now_ms() + delay_ms
        self._tier.later(delay_ms, self._owner.check)

    def _failed(self, error: Exception) -> None:
        delay_ms = min(FIRST_RETRY_MS << min(self._failures, 20), LONGEST_RETRY_MS)
        self._failures += 1
        self._tier.metrics.clean_errors += 1
        self._tier.report(
            f"the remote part of {self._owner.name} cannot be cleaned: {error}; trying again"
        )
        self._wait(delay_ms)

    def _leave_alone(self, reason: str) -> None:
        self.uncleanable_reason = f"remote part: {reason}"
        self._tier.metrics.clean_errors += 1
        self._tier.report(
            f"the remote part of {self._owner.name} is not compacted any more until the broker"
            f" restarts: {reason}"
        )
