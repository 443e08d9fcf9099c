"""A streaming read: Spark's questions about offsets, answered; executors read the ranges.

One object of this class lives in the driver's process of the query for as long as that
runs; it keeps its client open from batch to batch and over restarts of brokers. Copies of it
travel to executors, where only `read` is called: what the driver needs is made when first
asked for, and never travels.
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
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyspark_ottla.batch import read_task
from pyspark_ottla.group_offsets import GroupCommitter
from pyspark_ottla.offset_json import (
    Offsets,
    OffsetsDict,
    offsets_from_dict,
    offsets_to_dict,
)
from pyspark_ottla.options import StreamOptions
from pyspark_ottla.planning import plan_tasks
from pyspark_ottla.positions import StreamPositions
from pyspark_ottla.query_name import NameDesk, NameRequest, tell_name
from pyspark_ottla.ranges import OffsetRange, ReadTask

if TYPE_CHECKING:
    from pyarrow import RecordBatch

FINAL_COMMIT_TIMEOUT_S = 5.0
BATCHES_UNTIL_NAMED = 3
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamTask(ReadTask):
    """A task that also tells the driver's process the name of the query, when that asks."""

    name_request: NameRequest | None = None


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Answers Spark on the driver, reads on executors."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._driver: _Driver | None = None

    @property
    def _positions(self) -> StreamPositions:
        return self._at_driver.positions

    @property
    def _at_driver(self) -> _Driver:
        if self._driver is None:
            self._driver = _Driver(self._options)
        return self._driver

    def initialOffset(self) -> OffsetsDict:
        """Where a new query starts."""
        return offsets_to_dict(self._positions.initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of the options; Spark hands it back, unless the trigger wants everything."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: OffsetsDict, limit: ReadLimit) -> OffsetsDict:
        """How far the next batch reaches; everything before `start` is finished."""
        begin = offsets_from_dict(start)
        unlimited = isinstance(limit, ReadAllAvailable)
        end = self._positions.next_end(begin, unlimited=unlimited)
        self._at_driver.finished(begin, is_last=end == begin)
        return start if end == begin else offsets_to_dict(end)

    def reportLatestOffset(self) -> OffsetsDict | None:
        """The ends of the logs, for the progress of the query."""
        ends = self._positions.ends
        return None if not ends else offsets_to_dict(ends)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is there now, and end."""
        self._at_driver.stop_at_present()

    def partitions(self, start: OffsetsDict, end: OffsetsDict) -> list[InputPartition]:
        """The tasks of a batch."""
        ranges = self._positions.ranges(offsets_from_dict(start), offsets_from_dict(end))
        return self._at_driver.with_name_request(self.plan(ranges))

    def plan(self, ranges: Sequence[OffsetRange]) -> list[ReadTask]:
        """The tasks that read these ranges."""
        source = self._options.source
        return plan_tasks(ranges, source.min_partitions, source.max_records_per_partition)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """The records of one task, as Arrow; called on an executor."""
        if isinstance(partition, StreamTask) and partition.name_request is not None:
            tell_name(partition.name_request)
        return read_task(partition, self._options.source)

    def stop(self) -> None:
        """Close the connections."""
        if self._driver is not None:
            self._driver.close()
            self._driver = None


class _Driver:
    """What the driver's process keeps from batch to batch."""

    def __init__(self, options: StreamOptions) -> None:
        self.positions = StreamPositions(options)
        self._choice = options.group
        self._client = options.source.kafka.client
        self._committer = GroupCommitter(self._client, self._choice.group_id)
        self._desk: NameDesk | None = None
        self._asked = 0
        self._is_available_now = False

    def close(self) -> None:
        self.positions.close()
        self._committer.close()
        if self._desk is not None:
            self._desk.close()

    def stop_at_present(self) -> None:
        self._is_available_now = True
        self.positions.stop_at_present()

    def finished(self, offsets: Offsets, *, is_last: bool) -> None:
        """Commit what is finished; Spark ends this process soon after the last batch."""
        if not self._choice.enabled:
            return
        self._committer.finished(offsets)
        if is_last and self._is_available_now:
            self._committer.flush(FINAL_COMMIT_TIMEOUT_S)

    def with_name_request(self, tasks: list[ReadTask]) -> list[InputPartition]:
        """The tasks, the first with the question for the query's name while that is open."""
        is_open = self._choice.enabled and self._committer.group is None
        if not tasks or not is_open or self._asked > BATCHES_UNTIL_NAMED:
            return list(tasks)
        self._asked += 1
        if self._asked > BATCHES_UNTIL_NAMED:
            self._give_up_asking()
            return list(tasks)
        if self._desk is None:
            self._desk = NameDesk(self._client.bootstrap_servers, self._named)
        return [StreamTask(tasks[0].ranges, self._desk.request), *tasks[1:]]

    def _give_up_asking(self) -> None:
        where = "" if self._desk is None else " at {}:{}".format(*self._desk.request[:2])
        _log.warning(
            "no task could tell the driver%s the name of this query, so its offsets are not"
            " committed to a group: name one with the option groupId, or turn this off with"
            " groupId none",
            where,
        )
        if self._desk is not None:
            self._desk.close()

    def _named(self, name: str) -> None:
        self._committer.use_group(self._choice.group_of(name))
