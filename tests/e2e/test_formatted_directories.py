"""Directories that Kafka's tool has formatted are taken as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.client.address import parse_addresses
from ottla.client.cluster import Client
from ottla.client.features import describe_features
from ottla.metadata.image import MetadataImage
from ottla.metadata.snapshot import encode_snapshot
from ottla.testing import Cluster

LEVELS = {"metadata.version": 30, "eligible.leader.replicas.version": 1}


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_cluster_has_the_levels_that_it_was_formatted_with(tmp_path: Path, brokers: int) -> None:
    formatted = b"".join(encode_snapshot(MetadataImage(features=LEVELS), 0))
    names = [f"broker-{n}" for n in range(1, brokers + 1)] if brokers > 1 else ["."]
    for name in names:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "bootstrap.checkpoint").write_bytes(formatted)
    with Cluster(brokers, data_dir=tmp_path) as cluster:
        for _ in range(2):
            with Client(parse_addresses(cluster.bootstrap_servers)) as client:
                levels = {each.name: each.level for each in describe_features(client)}
            assert {name: levels[name] for name in LEVELS} == LEVELS
            cluster.restart()
