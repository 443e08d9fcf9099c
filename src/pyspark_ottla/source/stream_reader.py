"""Reads topics in a streaming query: the driver plans the batches, executors read them.

One reader lives in the driver's process for as long as the query runs. It keeps its client
open between batches and while brokers restart. Spark sends copies of the reader to executors,
where only `read` is called. So the state of the driver is created at the first use, after the
copy was made.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyspark_ottla.fetch.offset_range import OffsetRange
from pyspark_ottla.options.offset_json import (
    Offsets,
    OffsetsDict,
    offsets_from_dict,
    offsets_to_dict,
)
from pyspark_ottla.options.source_options import StreamOptions
from pyspark_ottla.source.group_commits import GroupCommitter
from pyspark_ottla.source.query_name import NameListener, NameRequest, send_name
from pyspark_ottla.source.range_reader import read_task
from pyspark_ottla.source.stream_offsets import StreamOffsets
from pyspark_ottla.source.task_plan import ReadTask, TaskBytes, plan_tasks

if TYPE_CHECKING:
    from pyarrow import RecordBatch

FINAL_COMMIT_TIMEOUT_S = 5.0
MAX_NAME_REQUESTS = 3
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamTask(ReadTask):
    """A task that also sends the name of the query to the driver, if the driver asked for it."""

    name_request: NameRequest | None = None


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver, reads records on executors."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._driver: _DriverState | None = None

    @property
    def _offsets(self) -> StreamOffsets:
        return self._driver_state.offsets

    @property
    def _driver_state(self) -> _DriverState:
        if self._driver is None:
            self._driver = _DriverState(self._options)
        return self._driver

    def initialOffset(self) -> OffsetsDict:
        """Return where a new query starts."""
        return offsets_to_dict(self._offsets.initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit in the options. Spark passes it to `latestOffset`.

        Triggers that read everything pass ReadAllAvailable instead.
        """
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: OffsetsDict, limit: ReadLimit) -> OffsetsDict:
        """Return the end of the next batch. Spark has finished everything before `start`."""
        begin = offsets_from_dict(start)
        unlimited = isinstance(limit, ReadAllAvailable)
        end = self._offsets.next_end(begin, unlimited=unlimited)
        self._driver_state.finished(begin, is_last=end == begin)
        return start if end == begin else offsets_to_dict(end)

    def reportLatestOffset(self) -> OffsetsDict | None:
        """Return the ends of the logs, for the progress report of the query."""
        ends = self._offsets.ends
        return None if not ends else offsets_to_dict(ends)

    def prepareForTriggerAvailableNow(self) -> None:
        """Stop the query at the current ends of the logs."""
        self._driver_state.stop_at_current_end()

    def partitions(self, start: OffsetsDict, end: OffsetsDict) -> list[InputPartition]:
        """Return the tasks of a batch."""
        ranges = self._offsets.ranges(offsets_from_dict(start), offsets_from_dict(end))
        return self._driver_state.with_name_request(self.plan(ranges))

    def plan(self, ranges: Sequence[OffsetRange]) -> list[ReadTask]:
        """Return the tasks that read these ranges."""
        source, limit = self._options.source, self._options.max_bytes_per_partition
        if limit is None:
            return plan_tasks(ranges, source.min_partitions, source.max_records_per_partition)
        sizes = TaskBytes(limit, self._offsets.bytes_per_offset())
        return plan_tasks(ranges, source.min_partitions, source.max_records_per_partition, sizes)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Yield the records of one task as Arrow batches. Spark calls this on an executor."""
        if isinstance(partition, StreamTask) and partition.name_request is not None:
            send_name(partition.name_request)
        return read_task(partition, self._options.source)

    def stop(self) -> None:
        """Close the connections."""
        if self._driver is not None:
            self._driver.close()
            self._driver = None


class _DriverState:
    """The state of the driver's process between batches."""

    def __init__(self, options: StreamOptions) -> None:
        self.offsets = StreamOffsets(options)
        self._group = options.group
        self._client = options.source.kafka.client
        self._committer = GroupCommitter(self._client, self._group.group_id)
        self._listener: NameListener | None = None
        self._requests = 0
        self._is_available_now = False

    def close(self) -> None:
        self.offsets.close()
        self._committer.close()
        if self._listener is not None:
            self._listener.close()

    def stop_at_current_end(self) -> None:
        self._is_available_now = True
        self.offsets.stop_at_current_end()

    def finished(self, offsets: Offsets, *, is_last: bool) -> None:
        """Commit finished offsets. After the last batch, wait, because Spark ends this process."""
        if not self._group.enabled:
            return
        self._committer.finished(offsets)
        if is_last and self._is_available_now:
            self._committer.flush(FINAL_COMMIT_TIMEOUT_S)

    def with_name_request(self, tasks: list[ReadTask]) -> list[InputPartition]:
        """Return the tasks. While the query's name is unknown, the first task is to send it."""
        is_unknown = self._group.enabled and self._committer.group is None
        if not tasks or not is_unknown or self._requests > MAX_NAME_REQUESTS:
            return list(tasks)
        self._requests += 1
        if self._requests > MAX_NAME_REQUESTS:
            self._warn_unknown_name()
            return list(tasks)
        if self._listener is None:
            self._listener = NameListener(self._client.bootstrap_servers, self._use_name)
        return [StreamTask(tasks[0].ranges, self._listener.request), *tasks[1:]]

    def _warn_unknown_name(self) -> None:
        where = "" if self._listener is None else " at {}:{}".format(*self._listener.request[:2])
        _log.warning(
            "no task could connect to the driver%s and send the name of this query, so its offsets"
            " are not committed to a group: set the option groupId to a group, or to none to turn"
            " commits off",
            where,
        )
        if self._listener is not None:
            self._listener.close()

    def _use_name(self, name: str) -> None:
        self._committer.use_group(self._group.group_of(name))
