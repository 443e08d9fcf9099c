"""A request that is refused as a whole gets the error wherever its response has room for one."""

from __future__ import annotations

from importlib import import_module

import pytest

from ottla.broker.context import RequestContext
from ottla.broker.handlers import SERVED
from ottla.model.acl import CLUSTER_NAME, AclOperation, AclResourceType
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.api_table import ApiKey
from ottla.wire.apis import request_class
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.support.broker import Broker, Denying, each_version, error_codes, filled, produce

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED  # what `denying` answers
VERSIONS = each_version(SERVED, without=ApiKey.API_VERSIONS)
NO_ROOM = {(ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2)}
"""Responses without an error of their own: like Kafka's they name no log directory."""


def api_versions() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="test", client_software_version="1")


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_every_response_has_room_for_a_refusal(
    denying: Broker, key: int, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = denying.connect()
    handled: list[object] = []
    client.ask(api_versions())
    api = denying.node.pipeline.apis.get(key)
    if api is None:
        module = import_module(f"ottla.broker.handlers.{ApiKey(key).name.lower()}")
        monkeypatch.setattr(module, "handle", lambda *args: handled.append(args))
    else:
        monkeypatch.setattr(api, "handle", lambda *args: handled.append(args))
    response = client.ask(filled(request_class(key), version), version)
    codes = set(error_codes(response, version))
    assert codes == (set() if (key, version) in NO_ROOM else {DENIED})
    assert not handled
    assert not client.connection.closing
    assert client.ask(api_versions()).error_code == ErrorCode.NONE


def test_api_versions_is_open_to_everybody(denying: Broker) -> None:
    for version in range(5):
        response = denying.connect().ask(api_versions(), version)
        assert response.error_code == ErrorCode.NONE
        assert {api.api_key for api in response.api_keys} == {int(key) for key in SERVED}


@pytest.mark.parametrize(
    "code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED]
)
def test_the_error_is_the_one_that_was_raised(broker: Broker, code: ErrorCode) -> None:
    broker.node.pipeline.authorizer = Denying(ApiError(code))
    client = broker.connect()
    assert set(error_codes(client.ask(produce(), 9), 9)) == {code}
    response = client.ask(CreateTopicsRequest(topics=[CreatableTopic(name="new")]))
    assert [topic.error_code for topic in response.topics] == [code]
    assert "new" not in broker.node.image.topics


def test_refusals_name_what_was_asked_for(denying: Broker) -> None:
    client = denying.connect()
    produced = client.ask(produce("a", index=3), 11).responses
    assert [(topic.name, topic.partition_responses[0].index) for topic in produced] == [("a", 3)]
    assert produced[0].partition_responses[0].base_offset == -1
    assert produced[0].partition_responses[0].error_message == "not you"

    request = FetchRequest(
        session_id=9,
        session_epoch=4,
        topics=[FetchTopic(topic="a", partitions=[FetchPartition(partition=3)])],
    )
    fetched = client.ask(request, 11)
    assert (fetched.error_code, fetched.session_id) == (DENIED, 9)
    assert [topic.partitions[0].partition_index for topic in fetched.responses] == [3]

    described = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="a")]), 12)
    assert [(topic.name, topic.error_code) for topic in described.topics] == [("a", DENIED)]

    committed = client.ask(
        OffsetCommitRequest(
            topics=[
                OffsetCommitRequestTopic(
                    name="a", partitions=[OffsetCommitRequestPartition(partition_index=3)]
                )
            ]
        ),
        9,
    )
    partition = committed.topics[0].partitions[0]
    assert (committed.topics[0].name, partition.partition_index) == ("a", 3)
    assert partition.error_code == DENIED

    groups = [OffsetFetchRequestGroup(group_id="g", topics=None)]
    answered = client.ask(OffsetFetchRequest(groups=groups), 9).groups
    assert [(group.group_id, group.error_code) for group in answered] == [("g", DENIED)]


@pytest.mark.parametrize("version", [10, 11])
def test_topics_cannot_be_asked_for_by_id_before_version_12(broker: Broker, version: int) -> None:
    topic_id = broker.topic().topic.topic_id
    for asked in (topic_id, bytes(15) + b"\x63"):
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t", topic_id=asked)])
        (topic,) = broker.connect().ask(request, version).topics
        assert (topic.topic_id, topic.error_code) == (asked, ErrorCode.INVALID_REQUEST)


def test_a_produce_without_acks_that_is_refused_closes_the_connection(denying: Broker) -> None:
    client = denying.connect()
    client.send(produce(acks=0), 9)
    assert client.connection.closing
    assert not client.connection.out


def test_a_refusal_keeps_its_place_among_the_replies(broker: Broker) -> None:
    broker.topic_with(isr=(1, 2))
    client = broker.connect()
    first = client.send(produce(), 9)
    broker.node.settle()
    broker.node.pipeline.authorizer = Denying(ApiError(DENIED))
    second = client.send(MetadataRequest(topics=None))
    third = client.send(produce(), 9)
    assert client.ids() == []
    broker.pass_time(1000)
    assert client.ids() == [first, second, third]


class ClusterAuthorizer:
    """Lets one principal use the cluster; it asks at the level of the API."""

    def check(self, context: RequestContext) -> None:
        context.authorize(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME)

    def allows(
        self,
        context: RequestContext,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> bool:
        return context.connection.principal == "User:broker"


def test_the_api_level_check_asks_for_a_resource(broker: Broker) -> None:
    broker.topic()
    broker.node.pipeline.authorizer = ClusterAuthorizer()
    anonymous, named = broker.connect(), broker.connect()
    named.connection.principal = "User:broker"
    assert set(error_codes(anonymous.ask(produce(), 9), 9)) == {DENIED}
    assert set(error_codes(named.ask(produce(), 9), 9)) == {ErrorCode.NONE}


def test_without_an_authorizer_everything_is_allowed(broker: Broker) -> None:
    client = broker.connect()
    client.ask(api_versions())
    context = RequestContext(
        broker.node.pipeline.apis[ApiKey.API_VERSIONS], client.connection, 0, 1
    )
    assert context.allows(AclOperation.WRITE, AclResourceType.TOPIC, "t")
    context.authorize(AclOperation.READ, AclResourceType.GROUP, "g")


@pytest.mark.parametrize(
    ("resource_type", "code"),
    [
        (AclResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (AclResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (AclResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (AclResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_a_denied_resource_has_the_error_of_its_type(
    denying: Broker, resource_type: AclResourceType, code: ErrorCode
) -> None:
    client = denying.connect()
    client.ask(api_versions())
    api = denying.node.pipeline.apis[ApiKey.API_VERSIONS]
    context = RequestContext(api, client.connection, 0, 1)
    with pytest.raises(ApiError) as denied:
        context.authorize(AclOperation.READ, resource_type, "x")
    assert denied.value.code == code
