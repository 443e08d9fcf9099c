"""A cluster of several whose features change, and that is restarted at each of their levels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla.client.address import parse_addresses
from ottla.client.cluster import Client
from ottla.client.errors import Refused
from ottla.client.features import UpgradeType, describe_features, update_features
from ottla.testing import Cluster
from tests.harness.confluent import Confluent
from tests.harness.deadline import eventually

ELR = "eligible.leader.replicas.version"
NEW = {"metadata.version": 25, ELR: 1}
OLD = {"metadata.version": 23, ELR: 0}


def write(cluster: Cluster, topic: str) -> None:
    with Confluent().producer(cluster.bootstrap_servers, acks="all") as producer:
        producer.send(topic, b"value")
        (ack,) = producer.flush(30)
        assert not ack.error


def levels(cluster: Cluster) -> dict[str, int]:
    with Client(parse_addresses(cluster.bootstrap_servers)) as client:
        found = {each.name: each.level for each in describe_features(client)}
    return {name: found[name] for name in NEW}


def change(cluster: Cluster, wanted: Mapping[str, int], upgrade_type: UpgradeType) -> None:
    with Client(parse_addresses(cluster.bootstrap_servers)) as client:
        update_features(client, wanted, upgrade_type, validate_only=True)
        update_features(client, wanted, upgrade_type, validate_only=False)
    eventually(lambda: levels(cluster) == wanted, f"the levels are {wanted}", 60)


def is_refused_for_its_loss(cluster: Cluster) -> bool:
    unsafe = UpgradeType.UNSAFE_DOWNGRADE
    with pytest.raises(Refused) as refused:
        change(cluster, {"metadata.version": 22}, unsafe)
    return "Unsafe metadata downgrade is not supported" in str(refused.value)


def test_levels_are_lowered_and_raised_again(tmp_path: Path) -> None:
    with Cluster(3, data_dir=tmp_path) as cluster:
        assert levels(cluster) == NEW
        eventually(lambda: is_refused_for_its_loss(cluster), "all controllers have registered", 60)
        write(cluster, cluster.create_topic("orders", 3))
        for wanted, upgrade_type in (
            (OLD, UpgradeType.SAFE_DOWNGRADE),
            (NEW, UpgradeType.UPGRADE),
        ):
            change(cluster, wanted, upgrade_type)
            write(cluster, cluster.create_topic(f"created-at-{wanted['metadata.version']}"))
            cluster.restart()
            assert levels(cluster) == wanted
            write(cluster, "orders")
            write(cluster, f"created-at-{wanted['metadata.version']}")
