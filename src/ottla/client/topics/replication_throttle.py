"""Throttles of reassignments (KIP-73): set before replicas move, removed afterwards.

As Kafka's tool does it: the topics name the replicas that send and those that receive, and every
broker that takes part gets the rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ottla.client.brokers import list_brokers
from ottla.client.cluster import Client
from ottla.client.configs import (
    ConfigChange,
    Resource,
    ResourceType,
    alter_configs,
    describe_configs,
)
from ottla.client.topics.reassignments import Placed, Reassignment
from ottla.model.ids import TopicPartition

LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


def set_throttle(
    client: Client,
    plan: Mapping[TopicPartition, Sequence[int]],
    placed: Mapping[TopicPartition, Placed],
    moving: Mapping[TopicPartition, Reassignment],
    bytes_a_second: int,
) -> None:
    """Limit what the partitions of a plan copy to this many bytes a second, for each broker."""
    deadline = client.deadline("setting the throttle")
    senders: dict[str, list[str]] = {}
    receivers: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for name, wanted in plan.items():
        if name not in placed:
            continue
        adding = moving[name].adding if name in moving else ()
        sources = [each for each in placed[name].replicas if each not in adding]
        targets = [each for each in wanted if each not in sources]
        senders.setdefault(name.topic, []).extend(f"{name.partition}:{each}" for each in sources)
        receivers.setdefault(name.topic, []).extend(f"{name.partition}:{each}" for each in targets)
        brokers.update(sources, targets)
    for topic, replicas in senders.items():
        settings = {LEADERS: ",".join(replicas), FOLLOWERS: ",".join(receivers[topic])}
        change = ConfigChange({name: value for name, value in settings.items() if value}, [])
        alter_configs(client, Resource(ResourceType.TOPIC, topic), change, deadline)
    for broker_id in _running(client, brokers):
        rates = dict.fromkeys(RATES, str(bytes_a_second))
        alter_configs(client, _broker(broker_id), ConfigChange(rates, []), deadline)


def clear_throttle(client: Client, topics: Iterable[str]) -> bool:
    """Remove the throttles of some topics and of all brokers; return True if there were any."""
    deadline = client.deadline("removing the throttle")
    resources = {
        Resource(ResourceType.TOPIC, topic): (LEADERS, FOLLOWERS) for topic in sorted(set(topics))
    }
    resources.update((_broker(broker_id), RATES) for broker_id in _running(client, None))
    found = describe_configs(client, list(resources), deadline)
    has_any = False
    for resource, names in resources.items():
        to_delete = [each.name for each in found[resource] if each.is_own and each.name in names]
        if to_delete:
            has_any = True
            alter_configs(client, resource, ConfigChange({}, to_delete), deadline)
    return has_any


def _running(client: Client, brokers: set[int] | None) -> list[int]:
    running = (each.broker_id for each in list_brokers(client) if not each.is_fenced)
    return sorted(each for each in running if brokers is None or each in brokers)


def _broker(broker_id: int) -> Resource:
    return Resource(ResourceType.BROKER, str(broker_id))
