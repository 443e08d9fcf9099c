"""Looks up partitions and offsets in the cluster, on the driver.

A query has one client, opened at the first lookup. A lookup takes one round trip for metadata
and one for offsets, however many brokers there are. If a broker is down, the lookup is retried
for `request.timeout.ms` and then raises an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from ottla.client.cluster import NO_NODE, Client
from ottla.client.deadline import Deadline
from ottla.client.errors import Refused, check
from ottla.client.settings import ClientSettings
from ottla.client.topics.offsets import list_offsets
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_OFFSET, TopicPartition
from ottla.wire.messages.metadata import MetadataResponseTopic
from pyspark_ottla.errors import MissingTopics
from pyspark_ottla.options.offset_json import Offsets
from pyspark_ottla.options.offset_spec import EARLIEST, LATEST
from pyspark_ottla.options.source_options import SourceOptions
from pyspark_ottla.options.subscription import Subscription

T = TypeVar("T")
_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class PartitionMetadata(NamedTuple):
    """The leader of a partition, and the id of its topic."""

    leader: int
    topic_id: bytes


Metadata = dict[TopicPartition, PartitionMetadata]


class Snapshot(NamedTuple):
    """The partitions of a query and one offset of each, looked up together."""

    metadata: Metadata
    offsets: Offsets


class OffsetLookup:
    """Looks up the partitions of one subscription. Not safe for several threads."""

    def __init__(
        self, settings: ClientSettings, subscription: Subscription, *, read_committed: bool
    ) -> None:
        self._settings = settings
        self._subscription = subscription
        self._read_committed = read_committed
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The client, opened at the first use."""
        if self._client is None:
            self._client = self._settings.connect()
        return self._client

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def latest(self, *, missing_ok: bool) -> Snapshot:
        """Return all partitions and the end of each.

        The end is the high watermark, or the last stable offset with read_committed. Raise
        MissingTopics for topics that do not exist, unless `missing_ok`.
        """

        def look_up(deadline: Deadline) -> Snapshot:
            metadata = self._find_partitions(deadline, missing_ok)
            ends = self._list_offsets(metadata, dict.fromkeys(metadata, LATEST), deadline)
            return Snapshot(metadata, ends)

        return self._retry("looking for new records", look_up)

    def metadata(self) -> Metadata:
        """Return all partitions. Raise MissingTopics for topics that do not exist."""
        return self._retry(
            "looking up topics", lambda deadline: self._find_partitions(deadline, False)
        )

    def offsets(self, metadata: Metadata, timestamps: Mapping[TopicPartition, int]) -> Offsets:
        """Return the first offset at or after each timestamp, or NO_OFFSET if there is none.

        The timestamps EARLIEST and LATEST stand for the start and the end of the log.
        """

        def look_up(deadline: Deadline) -> Offsets:
            wanted = {partition: metadata[partition] for partition in timestamps}
            return self._list_offsets(wanted, timestamps, deadline)

        return self._retry("looking up offsets", look_up) if timestamps else {}

    def earliest(self, partitions: set[TopicPartition]) -> Offsets:
        """Return the log start offsets of these partitions, without those that do not exist."""

        def look_up(deadline: Deadline) -> Offsets:
            found = self._find_partitions(deadline, missing_ok=True)
            wanted = {partition: found[partition] for partition in partitions & found.keys()}
            return self._list_offsets(wanted, dict.fromkeys(wanted, EARLIEST), deadline)

        return self._retry("looking up log start offsets", look_up) if partitions else {}

    def _retry(self, purpose: str, look_up: Callable[[Deadline], T]) -> T:
        deadline = self.client.deadline(f"{purpose} ({self._subscription})")
        return self.client.retry(lambda: look_up(deadline), deadline, harmless_twice=True)

    def _find_partitions(self, deadline: Deadline, missing_ok: bool) -> Metadata:
        topics = self.client.metadata(self._subscription.asked_topics, deadline)
        missing = sorted(topic.name or "" for topic in topics if topic.error_code in _GONE)
        if missing and not missing_ok:
            raise MissingTopics(missing)
        metadata = {
            partition: PartitionMetadata(found.leader_id, topic.topic_id)
            for topic in topics
            if self._is_readable(topic)
            for found in topic.partitions
            if self._subscription.takes(
                partition := TopicPartition(topic.name or "", found.partition_index)
            )
        }
        if not missing_ok and (absent := self._subscription.assigned - metadata.keys()):
            raise MissingTopics(sorted(str(partition) for partition in absent))
        return metadata

    def _is_readable(self, topic: MetadataResponseTopic) -> bool:
        if topic.error_code in _GONE:
            return False
        if topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
            check(topic.error_code, f"topic {topic.name}")
        return not (topic.is_internal and self._subscription.pattern is not None)

    def _list_offsets(
        self, metadata: Metadata, timestamps: Mapping[TopicPartition, int], deadline: Deadline
    ) -> Offsets:
        leaders = {partition: found.leader for partition, found in metadata.items()}
        for partition, leader in leaders.items():
            if leader == NO_NODE:
                raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, str(partition), "it has no leader")
        answers = list_offsets(
            self.client, leaders, timestamps, deadline, read_committed=self._read_committed
        )
        for partition, answer in answers.items():
            if answer.error_code in _GONE:  # deleted, or moved, since the metadata was read
                raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, str(partition), "it does not exist")
            check(answer.error_code, str(partition))
        return {partition: answer.offset for partition, answer in answers.items()}


def offset_lookup(source: SourceOptions) -> OffsetLookup:
    """Return the lookup for the topics and the cluster in the options."""
    return OffsetLookup(
        source.kafka.client, source.subscription, read_committed=source.kafka.read_committed
    )


def retry_missing(source: SourceOptions, look_up: Callable[[], T]) -> T:
    """Call `look_up` again while topics are missing. Brokers may learn of a new topic late."""
    for _ in range(source.attempts - 1):
        try:
            return look_up()
        except MissingTopics:
            time.sleep(source.attempt_interval_ms / 1000)
    return look_up()


def is_unmatched(offset: int) -> bool:
    """Return true if a partition has no record at or after the timestamp in the lookup."""
    return offset == NO_OFFSET
