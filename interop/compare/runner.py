"""Sends all cases to one broker and returns its normalised answers by title.

Kafka's brokers apply a change of the metadata a moment after the controller has answered. So after
each case that changes something, a marker is changed too, and the next case waits until the broker
shows the marker: a broker applies all changes in order.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count
from typing import cast

from compare.case import Case, Seen
from compare.client import Answer, Client
from compare.normalise import Normaliser, Plain
from compare.systems import words_of
from harness.broker import Broker
from ottla.model.config_resources import ResourceType
from ottla.model.errors import ErrorCode
from ottla.wire.message import Message
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

MARKER = "marker"
READY_TIMEOUT_S = 60.0
RETRY_S = 0.02


class Runner:
    """One broker, and what its answers have told so far."""

    def __init__(self, broker: Broker) -> None:
        self._client = Client(broker.port)
        self._seen = Seen()
        self._normaliser = Normaliser(self._seen, words_of(broker))
        self._markers = count(1)

    def run(self, cases: Sequence[Case]) -> dict[str, Plain]:
        """Return the normalised answer to each case."""
        self._wait_until_ready()
        self._client.get(_new_marker(), 7)
        self._wait_for_changes()
        answers = {case.title: self._answer(case) for case in cases}
        assert len(answers) == len(cases), "two cases have the same title"
        self._client.close()
        return answers

    def _answer(self, case: Case) -> Plain:
        request = case.ask(self._seen) if callable(case.ask) else case.ask
        answer = self._client.ask(request, case.version, answered=case.answered)
        deadline = time.monotonic() + READY_TIMEOUT_S
        while case.until is not None and isinstance(answer, Message) and not case.until(answer):
            assert time.monotonic() < deadline, f"{case.title}: {answer}"
            time.sleep(RETRY_S)
            answer = self._client.ask(request, case.version, answered=case.answered)
        if case.changes:
            self._wait_for_changes()
        if case.remember is not None and isinstance(answer, Message):
            case.remember(self._seen, answer)
        return self._normaliser.plain(answer, _version(case, answer))

    def _wait_until_ready(self) -> None:
        """Wait until this broker coordinates groups and has producer ids to give away."""
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        init = InitProducerIdRequest(transactional_id=None, transaction_timeout=1000)
        fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g")])
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            found = cast(FindCoordinatorResponse, self._client.get(find, 4))
            fetched = cast(OffsetFetchResponse, self._client.get(fetch, 8))
            started = cast(InitProducerIdResponse, self._client.get(init, 4))
            codes = (
                found.coordinators[0].error_code,
                fetched.groups[0].error_code,
                started.error_code,
            )
            if not any(codes):
                return
            time.sleep(RETRY_S)
        raise TimeoutError("the group coordinator is not ready")

    def _wait_for_changes(self) -> None:
        number = str(next(self._markers))
        self._client.get(_set_marker(number), 1)
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            described = cast(DescribeConfigsResponse, self._client.get(_get_marker(), 4))
            if [config.value for config in described.results[0].configs] == [number]:
                self._learn_topic_ids()
                return
            time.sleep(RETRY_S)
        raise TimeoutError("the broker does not show the last change")

    def _learn_topic_ids(self) -> None:
        known = cast(MetadataResponse, self._client.get(MetadataRequest(topics=None), 12))
        self._seen.topic_ids.update({topic.name or "": topic.topic_id for topic in known.topics})


def _version(case: Case, answer: Answer) -> int:
    """Return the version of the answer. UNSUPPORTED_VERSION of ApiVersions is in version 0."""
    refused = getattr(answer, "error_code", 0) == ErrorCode.UNSUPPORTED_VERSION
    return 0 if refused and case.api == "ApiVersions" else case.version


def _new_marker() -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=MARKER, num_partitions=1, replication_factor=1)]
    )


def _set_marker(number: str) -> IncrementalAlterConfigsRequest:
    config = AlterableConfig(name="retention.ms", value=number)
    resource = AlterConfigsResource(
        resource_type=ResourceType.TOPIC, resource_name=MARKER, configs=[config]
    )
    return IncrementalAlterConfigsRequest(resources=[resource])


def _get_marker() -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(
        resource_type=ResourceType.TOPIC, resource_name=MARKER, configuration_keys=["retention.ms"]
    )
    return DescribeConfigsRequest(resources=[resource])
