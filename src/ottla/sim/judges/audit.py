"""Reads everything a broker has after a restart and compares it with what clients were told.

After a clean stop all of it must be there, to the offset. After a kill everything that was
acknowledged or read; log starts may be older, because they are checkpointed now and then.
After a power failure the metadata, everything that was forced to disk, and of the rest a
beginning: no holes, no garbage, nothing in another order.
"""

from __future__ import annotations

from typing import Protocol

from ottla.model.config_resources import ResourceType
from ottla.model.errors import ErrorCode
from ottla.sim.judges.admin import changed, configs_of, own_configs
from ottla.sim.judges.conditions import Conditions, deletes
from ottla.sim.judges.fetch import read_batches
from ottla.sim.judges.offsets import EARLIEST, LATEST
from ottla.sim.judges.retention import check_start
from ottla.sim.model.cluster import ClusterModel, Place, TopicModel
from ottla.sim.model.partition import End
from ottla.sim.network.exchange import Exchange, Violation
from ottla.wire.message import Message
from ottla.wire.messages.create_partitions import CreatePartitionsRequest
from ottla.wire.messages.create_topics import CreateTopicsRequest
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic

_FETCH_BYTES = 1 << 20


class Ask(Protocol):
    """Asks the broker something at once."""

    def __call__(self, request: Message, version: int) -> Message: ...


class Audit:
    """Reads everything once, and compares it."""

    def __init__(self, model: ClusterModel, ask: Ask, conditions: Conditions) -> None:
        self._model = model
        self._ask = ask
        self._conditions = conditions
        self._created: dict[str, list[dict[str, str]]] = {}
        """Topics that unanswered requests have created, with the settings they may have."""

    def run(self) -> None:
        """Compare all there is; a Violation if something does not fit."""
        self._audit_topics()
        self._audit_configs()
        self._model.unanswered.clear()
        for place in self._model.places():
            self._audit_partition(place)

    # -- topics --------------------------------------------------------------------------

    def _audit_topics(self) -> None:
        reply = self._ask(MetadataRequest(topics=None), 12)
        assert isinstance(reply, MetadataResponse)
        found = {topic.name or "": topic for topic in reply.topics if not topic.is_internal}
        model = self._model
        for name in list(model.topics):
            topic = model.topics[name]
            answer = found.get(name)
            is_other = answer is not None and self._is_other(topic, answer)
            if answer is None or is_other:
                if not any(deletes(each, name, topic.topic_id) for each in model.unanswered):
                    raise Violation(f"the topic {name} was lost")
                model.remove_topic(name)
        for name, answer in found.items():
            self._audit_topic(name, answer)

    def _is_other(self, topic: TopicModel, answer: MetadataResponseTopic) -> bool:
        """Return whether a topic was deleted, and another one has its name."""
        if topic.topic_id:
            return topic.topic_id != answer.topic_id
        name, count = topic.name, len(answer.partitions)
        requests = self._model.unanswered
        return (
            count != len(topic.partitions)
            and any(deletes(each, name, b"") for each in requests)
            and any(_creates(each, name) is not None for each in requests)
            and not any(_grows(each, name) == count for each in requests)
        )

    def _audit_topic(self, name: str, answer: MetadataResponseTopic) -> None:
        model, count = self._model, len(answer.partitions)
        topic = model.topics.get(name)
        if topic is None:
            creations = [_creates(each, name) for each in model.unanswered]
            self._created[name] = [configs for configs in creations if configs is not None]
            if not self._created[name]:
                raise Violation(f"the topic {name} is back")
            model.add_topic(name, answer.topic_id, count, self._created[name][0])
            return
        model.learn_id(topic, answer.topic_id)
        have = len(topic.partitions)
        if count > have and any(_grows(each, name) == count for each in model.unanswered):
            topic.grow(count)
        elif count != have:
            raise Violation(f"{name} has {count} partitions, it had {have}")

    def _audit_configs(self) -> None:
        names = sorted(self._model.topics)
        resources = [
            DescribeConfigsResource(
                resource_type=ResourceType.TOPIC, resource_name=name, configuration_keys=None
            )
            for name in names
        ]
        reply = self._ask(DescribeConfigsRequest(resources=resources), 4)
        assert isinstance(reply, DescribeConfigsResponse)
        for name, found in own_configs(reply).items():
            topic = self._model.topics[name]
            if found not in self._possible_configs(name, topic.configs):
                raise Violation(f"{name} has the settings {found}, told {topic.configs}")
            topic.set_configs(found)

    def _possible_configs(self, name: str, told: dict[str, str]) -> list[dict[str, str]]:
        """Return what may have become of a topic's settings.

        The changes that no client got an answer to were made one after the other. One that was
        refused is undone, which the next write forces to disk: it may be there in place of all
        others.
        """
        possible = begun = self._created.get(name, [told])
        made = begun
        for each in self._model.unanswered:
            if not isinstance(each.request, IncrementalAlterConfigsRequest):
                continue
            for resource in each.request.resources:
                if resource.resource_name == name and each.reply is None:
                    made = [changed(configs, resource) for configs in made]
                    possible = [*possible, *made]
                elif resource.resource_name == name:
                    possible = [*possible, *(changed(configs, resource) for configs in begun)]
        return possible

    # -- partitions ----------------------------------------------------------------------

    def _audit_partition(self, place: Place) -> None:
        start, end = self._offset(place, EARLIEST), self._offset(place, LATEST)
        if start is None or end is None:
            return
        partition = place.partition
        where = f"{partition.name} after {partition.worst_end.value}: [{start}, {end})"
        self._audit_start(place, start, where)
        if partition.worst_end is End.POWER:
            if end < partition.durable_end:
                raise Violation(f"{where}: {partition.durable_end} was forced to disk")
            if end < partition.acked_end:
                partition.cut_back(end)
        elif not partition.acked_end <= end <= partition.acked_end + partition.open_records:
            raise Violation(
                f"{where}: it had {partition.acked_end} and {partition.open_records} open"
            )
        partition.start = start
        if not self._read_all(place, start, end):
            return
        partition.end = partition.acked_end = end
        partition.durable_end = min(partition.durable_end, end)
        partition.resolve()
        self._audit_producers(place)

    def _audit_start(self, place: Place, start: int, where: str) -> None:
        partition = place.partition
        if start < partition.start and partition.worst_end is End.CLEAN:
            raise Violation(f"{where}: the log started at {partition.start}")
        if start > partition.start:
            check_start(place, start, self._conditions)

    def _offset(self, place: Place, timestamp: int) -> int | None:
        name, index = place.topic.name, place.partition_index
        asked = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        topic = ListOffsetsTopic(name=name, partitions=[asked])
        reply = self._ask(ListOffsetsRequest(topics=[topic]), 5)
        assert isinstance(reply, ListOffsetsResponse)
        answer = reply.topics[0].partitions[0]
        is_storage = answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        if is_storage and self._conditions.may_fail(name, index):
            return None
        if answer.error_code:
            raise Violation(f"{place.partition.name} cannot be read: {answer}")
        return answer.offset

    def _read_all(self, place: Place, start: int, end: int) -> bool:
        """Read all of it; return whether that worked: what was not found is not there then."""
        offset = start
        while offset < end:
            partition = FetchPartition(
                partition=place.partition_index,
                fetch_offset=offset,
                partition_max_bytes=_FETCH_BYTES,
            )
            topic = FetchTopic(topic=place.topic.name, partitions=[partition])
            reply = self._ask(
                FetchRequest(max_bytes=_FETCH_BYTES, session_epoch=-1, topics=[topic]), 11
            )
            assert isinstance(reply, FetchResponse)
            data = reply.responses[0].partitions[0]
            if data.error_code == ErrorCode.KAFKA_STORAGE_ERROR and self._conditions.io_errors:
                return False
            next_offset, _ = read_batches(self._model, place, data.records or b"", offset)
            if next_offset <= offset:
                raise Violation(f"{place.partition.name}: nothing at {offset}: {data}")
            offset = next_offset
        if offset != end:
            raise Violation(f"{place.partition.name}: read up to {offset}, it ends at {end}")
        return True

    def _audit_producers(self, place: Place) -> None:
        """Check that the broker knows the sequences that are known for sure."""
        name, index = place.topic.name, place.partition_index
        topic = TopicRequest(name=name, partition_indexes=[index])
        reply = self._ask(DescribeProducersRequest(topics=[topic]), 0)
        assert isinstance(reply, DescribeProducersResponse)
        answer = reply.topics[0].partitions[0]
        if answer.error_code:
            return
        found = {each.producer_id: each for each in answer.active_producers}
        for producer_id, state in place.partition.producers.items():
            silent_ms = self._conditions.newest_wall_ms - state.last_timestamp
            if not state.batches or silent_ms >= self._conditions.producer_expiration_ms:
                continue
            known = found.get(producer_id)
            expected = state.producer_epoch, state.batches[-1].last_sequence
            if known is None or (known.producer_epoch, known.last_sequence) != expected:
                raise Violation(
                    f"{place.partition.name}: producer {producer_id} is at {expected}, told {known}"
                )


def _creates(exchange: Exchange, name: str) -> dict[str, str] | None:
    """Return the settings of the topic an unanswered request may have created, or None."""
    request = exchange.request
    if isinstance(request, CreateTopicsRequest) and not request.validate_only:
        for topic in request.topics:
            if topic.name == name:
                return configs_of(topic)
    if isinstance(request, MetadataRequest) and any(t.name == name for t in request.topics or ()):
        return {}
    return None


def _grows(exchange: Exchange, name: str) -> int:
    request = exchange.request
    if isinstance(request, CreatePartitionsRequest):
        for topic in request.topics:
            if topic.name == name:
                return topic.count
    return -1
