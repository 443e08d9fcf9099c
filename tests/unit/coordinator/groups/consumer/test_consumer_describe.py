"""How groups of the consumer protocol look from outside, and what clients are told beforehand."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.model.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.support.consumer_groups import (
    GROUP,
    TOPIC,
    Broker,
    Consumer,
    consumer_group,
    describe,
    settle,
)

GROUP_RESOURCE = 32


def test_a_group_with_its_members(broker: Broker) -> None:
    consumer = Consumer(broker, "a", [TOPIC], regex="x.*", instance_id="i", assignor="range")
    settle(broker, consumer)
    described = describe(broker)
    assert (described.error_code, described.group_id) == (ErrorCode.NONE, GROUP)
    assert (described.group_state, described.assignor_name) == ("Stable", "range")
    assert (described.group_epoch, described.assignment_epoch) == (1, 1)
    (member,) = described.members
    assert (member.member_id, member.instance_id, member.member_epoch) == ("a", "i", 1)
    assert (member.client_id, member.client_host) == ("a", "/127.0.0.1")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == ([TOPIC], "x.*")
    (topic,) = member.assignment.topic_partitions
    assert (topic.topic_name, topic.partitions) == (TOPIC, list(range(8)))
    assert member.target_assignment == member.assignment
    assert member.member_type == 1


def test_a_group_on_its_way(broker: Broker) -> None:
    first, second = Consumer(broker, "a"), Consumer(broker, "b")
    settle(broker, first)
    second.heartbeat()
    described = describe(broker)
    assert described.group_state == "Reconciling"
    now, later = (
        {
            member.member_id: sum(
                len(t.partitions) for t in getattr(member, which).topic_partitions
            )
            for member in described.members
        }
        for which in ("assignment", "target_assignment")
    )
    assert (now, later) == ({"a": 8, "b": 0}, {"a": 4, "b": 4})


@pytest.mark.parametrize("version", [0, 1])
def test_groups_that_are_not_there(broker: Broker, version: int) -> None:
    request = ConsumerGroupDescribeRequest(group_ids=["none", ""])
    groups = broker.connect().ask(request, ConsumerGroupDescribeResponse, version).groups
    assert [group.error_code for group in groups] == [
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_GROUP_ID,
    ]
    assert groups[0].error_message == "Group none not found."


def test_authorized_operations_only_when_asked_for(broker: Broker) -> None:
    settle(broker, Consumer(broker, "a"))
    assert describe(broker).authorized_operations == -(2**31)
    request = ConsumerGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=True)
    (group,) = broker.connect().ask(request, ConsumerGroupDescribeResponse).groups
    assert group.authorized_operations > 0


def test_the_classic_describe_does_not_know_it(broker: Broker) -> None:
    settle(broker, Consumer(broker, "a"))
    response = broker.connect().ask(DescribeGroupsRequest(groups=[GROUP]), DescribeGroupsResponse)
    assert response.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert response.groups[0].group_state == "Dead"


def test_listing(broker: Broker) -> None:
    consumer = Consumer(broker, "a")
    settle(broker, consumer)

    def listed(**filters: Any) -> list[tuple[str, str, str, str]]:
        request = ListGroupsRequest(**filters)
        return [
            (group.group_id, group.group_state, group.group_type, group.protocol_type)
            for group in broker.connect().ask(request, ListGroupsResponse).groups
        ]

    assert listed() == [(GROUP, "Stable", "consumer", "consumer")]
    assert listed(types_filter=["Consumer"], states_filter=["stable"]) == listed()
    assert listed(types_filter=["classic"]) == listed(states_filter=["Empty"]) == []
    consumer.leave()
    assert listed(states_filter=["empty"]) == [(GROUP, "Empty", "consumer", "consumer")]


# -- group settings ----------------------------------------------------------------------


def described_configs(broker: Broker, name: str = GROUP) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=GROUP_RESOURCE, resource_name=name)],
        include_synonyms=True,
    )
    (result,) = broker.connect().ask(request, DescribeConfigsResponse).results
    return result


def settings(broker: Broker) -> dict[str, tuple[str | None, int]]:
    result = described_configs(broker)
    assert result.error_code == ErrorCode.NONE
    return {config.name: (config.value, config.config_source) for config in result.configs}


def test_settings_come_from_the_group_or_the_broker(broker: Broker) -> None:
    assert settings(broker) == {
        "consumer.assignment.interval.ms": ("1000", 5),
        "consumer.heartbeat.interval.ms": ("5000", 5),
        "consumer.session.timeout.ms": ("45000", 5),
    }
    assert broker.alter_group(**{"consumer.session.timeout.ms": "50000"}) is ErrorCode.NONE
    assert settings(broker)["consumer.session.timeout.ms"] == ("50000", 8)
    broker.crash_and_restart()
    assert settings(broker)["consumer.session.timeout.ms"] == ("50000", 8)
    assert broker.alter_group(**{"consumer.session.timeout.ms": None}) is ErrorCode.NONE
    assert settings(broker)["consumer.session.timeout.ms"] == ("45000", 5)
    assert described_configs(broker, "").error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("consumer.session.timeout.ms", "44999"),
        ("consumer.session.timeout.ms", "60001"),
        ("consumer.session.timeout.ms", "long"),
        ("consumer.heartbeat.interval.ms", "4999"),
        ("consumer.heartbeat.interval.ms", "15001"),
        ("consumer.assignment.interval.ms", "-1"),
        ("consumer.nonsense", "1"),
    ],
)
def test_settings_out_of_range_are_refused(broker: Broker, name: str, value: str) -> None:
    assert broker.alter_group(**{name: value}) is ErrorCode.INVALID_CONFIG
    assert all(source == 5 for _, source in settings(broker).values())


# -- features ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 4])
def test_clients_learn_that_the_protocol_is_there(broker: Broker, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    response = broker.connect().ask(request, ApiVersionsResponse, version)
    final = {f.name: f.max_version_level for f in response.finalized_features}
    assert final == {
        "metadata.version": 25,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "transaction.version": 2,
    }
    assert response.finalized_features_epoch >= 0
    supported = {f.name: (f.min_version, f.max_version) for f in response.supported_features}
    assert supported["metadata.version"] == (7, 30)
    # Clients of version 3 take a lowest level of 0 for an error.
    assert supported.get("group.version") == ((0, 1) if version == 4 else None)


def test_describing_waits_for_what_is_described(broker: Broker) -> None:
    """What is not committed yet is not told."""
    consumer = Consumer(broker, "a")
    pending = consumer.client.queue(consumer.request())
    asked = broker.connect().queue(ConsumerGroupDescribeRequest(group_ids=[GROUP]))
    assert pending.response is None
    assert asked.response is None
    broker.settle()
    assert asked.of(ConsumerGroupDescribeResponse).groups[0].group_epoch == 1
    assert consumer_group(broker).epoch == 1
