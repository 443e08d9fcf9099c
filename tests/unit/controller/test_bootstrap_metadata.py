"""What Kafka's tool leaves in bootstrap.checkpoint, and what a new cluster makes of it."""

from __future__ import annotations

import re

import pytest

from ottla.config.broker import BrokerConfig
from ottla.controller.bootstrap_metadata import BootstrapMetadata, read_bootstrap
from ottla.memory_files import MemoryFiles
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.serde import MetadataError
from ottla.metadata.snapshot import encode_snapshot
from ottla.model.config_resources import ResourceType

PATH = "/data/bootstrap.checkpoint"
ELR = "eligible.leader.replicas.version"
CLUSTER = (ResourceType.BROKER, "")
EMPTY = MetadataImage("cluster")


def content(**image: object) -> bytes:
    """Return a file as Kafka's tool writes it."""
    return b"".join(encode_snapshot(MetadataImage(**image), 0))  # type: ignore[arg-type]


def read(data: bytes) -> tuple[BootstrapMetadata, list[str]]:
    files = MemoryFiles()
    files.make_dirs("/data")
    file = files.open(PATH, create=True, writable=True)
    file.pwritev([data], 0)
    file.close()
    reports: list[str] = []
    return read_bootstrap(files, PATH, reports.append), reports


def begun(bootstrap: BootstrapMetadata, image: MetadataImage = EMPTY) -> MetadataImage:
    records = bootstrap.first_records(image, BrokerConfig())
    return MetadataDelta(image).replay_all(records).apply()


def test_a_cluster_begins_with_the_levels_and_settings_of_the_file() -> None:
    levels = {"metadata.version": 22, "group.version": 0, "transaction.version": 1}
    found, reports = read(content(features=levels, configs={CLUSTER: {"log.retention.ms": "5"}}))
    image = begun(found)
    assert image.features == {"metadata.version": 22, "transaction.version": 1}
    assert image.configs == {CLUSTER: {"log.retention.ms": "5"}}
    assert reports == []


def test_features_that_are_not_there_stay_off() -> None:
    levels = {"metadata.version": 30, "share.version": 1, "streams.version": 1}
    found, reports = read(content(features=levels))
    assert begun(found).features == {"metadata.version": 30}
    assert reports == [
        f"{PATH}: features that Ottla does not have stay off: share.version, streams.version"
    ]


@pytest.mark.parametrize("settings", [{}, {"min.insync.replicas": "3"}])
def test_eligible_leaders_need_one_number_for_all_brokers(settings: dict[str, str]) -> None:
    configs = {CLUSTER: settings} if settings else {}
    found, _ = read(content(features={"metadata.version": 30, ELR: 1}, configs=configs))
    wanted = settings or {"min.insync.replicas": "1"}
    assert begun(found).configs == {CLUSTER: wanted}


def test_an_older_cluster_does_not_change() -> None:
    found, _ = read(content(features={"metadata.version": 30, ELR: 1}))
    old = begun(BootstrapMetadata([]), EMPTY._replace(features={"metadata.version": 25}))
    assert begun(found, old).features == old.features
    assert old.features["metadata.version"] == 25


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (content(features={"metadata.version": 31}), "asks for metadata.version 31, and"),
        (content(features={"group.version": 1}), "does not say which metadata.version"),
        (content(features={"metadata.version": 30})[:-1], "the last batch is incomplete"),
        (b"", "has no footer"),
        (bytes(1024 * 1024 + 1), "is too large"),
    ],
    ids=["level", "none", "torn", "empty", "large"],
)
def test_files_that_cannot_be_used(data: bytes, message: str) -> None:
    with pytest.raises(MetadataError, match=re.escape(message)):
        read(data)
