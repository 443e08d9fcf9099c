"""What the driver asks the cluster: which partitions there are, and their offsets.

One client for the life of a query, opened at the first question. A look is one round trip
for metadata and one for offsets, however many brokers there are. A broker that goes away is
waited for within `request.timeout.ms`; then the error says so.
"""

from __future__ import annotations

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
from pyspark_ottla.offset_json import Offsets
from pyspark_ottla.offset_spec import EARLIEST, LATEST
from pyspark_ottla.subscription import Subscription

T = TypeVar("T")
_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class Place(NamedTuple):
    """Who leads a partition, and the id of its topic."""

    leader: int
    topic_id: bytes


Places = dict[TopicPartition, Place]


class View(NamedTuple):
    """The partitions of a query and one offset of each, looked up together."""

    places: Places
    offsets: Offsets


class OffsetReader:
    """Answers about the partitions of one subscription; one thread at a time."""

    def __init__(
        self, settings: ClientSettings, subscription: Subscription, *, read_committed: bool
    ) -> None:
        self._settings = settings
        self._subscription = subscription
        self._read_committed = read_committed
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The one client, opened when it is first needed."""
        if self._client is None:
            self._client = self._settings.connect()
        return self._client

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def latest(self, *, missing_ok: bool) -> View:
        """All partitions with their ends; MissingTopics for those not there, unless `missing_ok`.

        The end is the high watermark, or the last stable offset under read_committed.
        """

        def look(deadline: Deadline) -> View:
            places = self._look_up(deadline, missing_ok)
            return View(places, self._ask(places, dict.fromkeys(places, LATEST), deadline))

        return self._retry("looking for new records", look)

    def places(self) -> Places:
        """All partitions of the subscription; MissingTopics when a topic is not there."""
        return self._retry("looking up topics", lambda deadline: self._look_up(deadline, False))

    def offsets(self, places: Places, timestamps: Mapping[TopicPartition, int]) -> Offsets:
        """The first offset at or after each time (EARLIEST, LATEST: those), NO_OFFSET if none."""

        def look(deadline: Deadline) -> Offsets:
            leaders = {partition: places[partition] for partition in timestamps}
            return self._ask(leaders, timestamps, deadline)

        return self._retry("looking up offsets", look) if timestamps else {}

    def earliest(self, partitions: set[TopicPartition]) -> Offsets:
        """The log starts of those of the partitions that are there."""

        def look(deadline: Deadline) -> Offsets:
            found = self._look_up(deadline, missing_ok=True)
            places = {partition: found[partition] for partition in partitions & found.keys()}
            return self._ask(places, dict.fromkeys(places, EARLIEST), deadline)

        return self._retry("looking up log starts", look) if partitions else {}

    def _retry(self, purpose: str, look: Callable[[Deadline], T]) -> T:
        deadline = self.client.deadline(f"{purpose} ({self._subscription})")
        return self.client.retry(lambda: look(deadline), deadline, harmless_twice=True)

    def _look_up(self, deadline: Deadline, missing_ok: bool) -> Places:
        topics = self.client.metadata(self._subscription.asked_topics, deadline)
        missing = sorted(topic.name or "" for topic in topics if topic.error_code in _GONE)
        if missing and not missing_ok:
            raise MissingTopics(missing)
        places = {
            partition: Place(found.leader_id, topic.topic_id)
            for topic in topics
            if self._is_readable(topic)
            for found in topic.partitions
            if self._subscription.takes(
                partition := TopicPartition(topic.name or "", found.partition_index)
            )
        }
        if not missing_ok and (absent := self._subscription.assigned - places.keys()):
            raise MissingTopics(sorted(str(partition) for partition in absent))
        return places

    def _is_readable(self, topic: MetadataResponseTopic) -> bool:
        if topic.error_code in _GONE:
            return False
        if topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
            check(topic.error_code, f"topic {topic.name}")
        return not (topic.is_internal and self._subscription.pattern is not None)

    def _ask(
        self, places: Places, timestamps: Mapping[TopicPartition, int], deadline: Deadline
    ) -> Offsets:
        leaders = {partition: place.leader for partition, place in places.items()}
        for partition, leader in leaders.items():
            if leader == NO_NODE:
                raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, str(partition), "it has no leader")
        answers = list_offsets(
            self.client, leaders, timestamps, deadline, read_committed=self._read_committed
        )
        for partition, answer in answers.items():
            if answer.error_code in _GONE:  # deleted, or moved, since the metadata was read
                raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, str(partition), "it is not there")
            check(answer.error_code, str(partition))
        return {partition: answer.offset for partition, answer in answers.items()}


def is_unmatched(offset: int) -> bool:
    """Whether no record was as late as the time asked for."""
    return offset == NO_OFFSET
