"""Commits the offsets of a stream to a consumer group, so that Kafka tools show its lag.

The query continues from its checkpoint. Offsets are never read back from the group. Commits run
on a separate thread with a separate client, so a slow coordinator delays no batch. Only the
newest offsets are queued. If a commit fails there is one warning, and no other until a commit
has succeeded. The group has no members. A group with members rejects these commits.

The committed offsets are those that Spark has finished: the start of the next batch, not the
end of the current one. All partitions are committed again after REFRESH_S, because a broker
deletes the offsets of a group without members after offsets.retention.minutes.
"""

from __future__ import annotations

import logging
import threading
import time

from ottla.client.cluster import Client
from ottla.client.errors import ClientError
from ottla.client.groups.offsets import commit_offsets
from ottla.client.settings import ClientSettings
from pyspark_ottla.options.offset_json import Offsets

REFRESH_S = 3_600.0
_log = logging.getLogger(__name__)


class GroupCommitter:
    """Commits the newest finished offsets to `group`, as soon as the group is known."""

    def __init__(self, settings: ClientSettings, group: str | None) -> None:
        self._settings = settings
        self._group = group
        self._changed = threading.Condition()
        self._finished: Offsets = {}
        self._committed_at = 0.0
        self._is_due = False
        self._is_closed = False
        self._has_warned = False
        self._thread: threading.Thread | None = None

    @property
    def group(self) -> str | None:
        """The group, or None while it is unknown."""
        return self._group

    def use_group(self, group: str) -> None:
        """Commit to this group from now on."""
        with self._changed:
            self._group = group
            self._changed.notify_all()

    def finished(self, offsets: Offsets) -> None:
        """Commit these offsets in the background. Spark has finished everything before them."""
        with self._changed:
            is_fresh = time.monotonic() - self._committed_at < REFRESH_S
            if not offsets or (offsets == self._finished and (self._is_due or is_fresh)):
                return
            self._finished = offsets
            self._is_due = True
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="ottla-group-offsets", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> None:
        """Wait until the commit has succeeded or failed, at most for `timeout_s`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_due or self._group is None, timeout_s)

    def close(self) -> None:
        """Stop committing."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        with self._settings.connect() as client:
            while (due := self._next()) is not None:
                group, offsets = due
                self._commit(client, group, offsets)
                self._done(offsets)

    def _next(self) -> tuple[str, Offsets] | None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or (self._is_due and self._group is not None)
            )
            if self._is_closed or self._group is None:
                return None
            return self._group, self._finished

    def _done(self, offsets: Offsets) -> None:
        with self._changed:
            self._committed_at = time.monotonic()
            self._is_due = self._finished != offsets
            self._changed.notify_all()

    def _commit(self, client: Client, group: str, offsets: Offsets) -> None:
        try:
            outcomes = commit_offsets(client, group, offsets)
        except ClientError as error:
            self._warn(group, str(error))
            return
        failed = [outcome.error for outcome in outcomes if outcome.error is not None]
        if failed:
            self._warn(group, str(failed[0]))
        else:
            self._has_warned = False

    def _warn(self, group: str, why: str) -> None:
        if not self._has_warned:
            _log.warning(
                "the offsets of this query are not committed to group %s: %s. The query continues;"
                " its checkpoint has the offsets. To use another group, set the option groupId",
                group,
                why,
            )
        self._has_warned = True
