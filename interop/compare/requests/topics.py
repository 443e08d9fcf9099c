"""CreateTopics: the topics that other requests use, and every way to be refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from compare.case import Case, case, in_versions
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

CREATED: Mapping[str, tuple[int, Mapping[str, str]]] = {
    "empty": (2, {}),
    "full": (3, {}),
    "refused": (1, {}),
    "twice": (1, {}),
    "appended": (1, {"message.timestamp.type": "LogAppendTime"}),
    "compacted": (1, {"cleanup.policy": "compact"}),
    "strict-time": (1, {"message.timestamp.before.max.ms": "1000"}),
    "zstd": (1, {"compression.type": "zstd"}),
    "small": (1, {"max.message.bytes": "200"}),
    "deleted-from": (1, {}),
    "configured": (1, {"retention.ms": "1000", "cleanup.policy": "compact,delete"}),
    "grown": (1, {}),
    "insync": (1, {"min.insync.replicas": "2"}),
    "dotted.name": (1, {}),
}
"""The topics that other requests use: their partitions and settings."""


def topic(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    configs: Sequence[tuple[str, str | None]] = (),
    replicas: Sequence[tuple[int, Sequence[int]]] = (),
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs],
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids))
            for index, ids in replicas
        ],
    )


def create(*topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=topics, timeout=10_000, validate_only=validate_only)


REFUSED: Mapping[str, CreatableTopic] = {
    "existing name": topic("full"),
    "empty name": topic(""),
    "dot": topic("."),
    "two dots": topic(".."),
    "bad character": topic("a b"),
    "slash": topic("a/b"),
    "umlaut": topic("ä"),
    "name of 250 characters": topic("n" * 250),
    "colliding name": topic("dotted_name"),
    "metadata topic": topic("__cluster_metadata"),
    "no partitions": topic("t", 0),
    "negative partitions": topic("t", -2),
    "replication factor 0": topic("t", 1, 0),
    "replication factor -2": topic("t", 1, -2),
    "replication factor 2": topic("t", 1, 2),
    "replication factor 3": topic("t", 2, 3),
    "unknown setting": topic("t", configs=[("no.such.setting", "1")]),
    "unknown and bad setting": topic("t", configs=[("no.such", "1"), ("retention.ms", "x")]),
    "two unknown settings": topic("t", configs=[("no.such", "1"), ("neither", "x")]),
    "broker setting": topic("t", configs=[("log.retention.ms", "1")]),
    "number that is none": topic("t", configs=[("retention.ms", "soon")]),
    "number with a fraction": topic("t", configs=[("retention.ms", "1.5")]),
    "number too large": topic("t", configs=[("segment.bytes", "99999999999")]),
    "number below the least": topic("t", configs=[("segment.bytes", "1")]),
    "retention below the least": topic("t", configs=[("retention.ms", "-2")]),
    "boolean that is none": topic("t", configs=[("preallocate", "yes")]),
    "word that is not allowed": topic("t", configs=[("compression.type", "brotli")]),
    "list word not allowed": topic("t", configs=[("cleanup.policy", "compact,burn")]),
    "timestamp type": topic("t", configs=[("message.timestamp.type", "now")]),
    "ratio above 1": topic("t", configs=[("min.cleanable.dirty.ratio", "1.5")]),
    "double that is none": topic("t", configs=[("min.cleanable.dirty.ratio", "half")]),
    "null setting": topic("t", configs=[("retention.ms", None)]),
    "setting twice": topic("t", configs=[("retention.ms", "1"), ("retention.ms", "2")]),
    "lags crossed": topic(
        "t", configs=[("min.compaction.lag.ms", "9"), ("max.compaction.lag.ms", "8")]
    ),
    "local retention above retention": topic(
        "t", configs=[("retention.ms", "5"), ("local.retention.ms", "6")]
    ),
    "tiered topic": topic("t", configs=[("remote.storage.enable", "true")]),
    "throttled replicas": topic("t", configs=[("leader.replication.throttled.replicas", "x")]),
    "gzip level": topic("t", configs=[("compression.gzip.level", "99")]),
    "lz4 level": topic("t", configs=[("compression.lz4.level", "99")]),
    "zstd level": topic("t", configs=[("compression.zstd.level", "99")]),
    "assignment and numbers": topic("t", 1, 1, replicas=[(0, [1])]),
    "assignment without replicas": topic("t", -1, -1, replicas=[(0, [])]),
    "assignment to an unknown broker": topic("t", -1, -1, replicas=[(0, [9])]),
    "assignment to a broker twice": topic("t", -1, -1, replicas=[(0, [1, 1])]),
    "assignment with a gap": topic("t", -1, -1, replicas=[(1, [1])]),
    "assignment of a partition twice": topic("t", -1, -1, replicas=[(0, [1]), (0, [1])]),
    "assignment of unequal numbers": topic("t", -1, -1, replicas=[(0, [1]), (1, [1, 2])]),
    "negative broker": topic("t", -1, -1, replicas=[(0, [-1])]),
}
VALIDATED: Mapping[str, CreatableTopic] = {
    "defaults": topic("v", -1, -1),
    "assigned": topic("v", -1, -1, replicas=[(0, [1]), (1, [1])]),
    "setting with spaces": topic("v", configs=[("retention.ms", " 7 ")]),
    "empty cleanup policy": topic("v", configs=[("cleanup.policy", "")]),
    "cleanup policy none": topic("v", configs=[("cleanup.policy", "none")]),
    "policy word twice": topic("v", configs=[("cleanup.policy", "delete,delete")]),
    "boolean in capitals": topic("v", configs=[("preallocate", "TRUE")]),
    "throttled replicas": topic("v", configs=[("leader.replication.throttled.replicas", "0:1")]),
    "two settings": topic("v", configs=[("retention.ms", "7"), ("retention.bytes", "8")]),
}


def cases() -> Iterator[Case]:
    """Yield the cases."""
    for name, (partitions, configs) in CREATED.items():
        wanted = topic(name, partitions, 1, list(configs.items()))
        yield case(f"create {name}", 7, create(wanted), changes=True)
    for name, wanted in REFUSED.items():
        yield case(name, 7, create(wanted, validate_only=True))
    for name, wanted in VALIDATED.items():
        yield case(f"validate {name}", 7, create(wanted, validate_only=True))
    for version in (2, 3, 4, 5, 6):
        yield case("validate", version, create(topic("v"), validate_only=True))
        yield case("existing name", version, create(topic("full")))
    yield from in_versions("no topics", (2, 5, 7), create())
    yield case("name twice", 7, create(topic("t"), topic("t")))
    yield case(
        "a good and a bad one, validated", 7, create(topic("v"), topic(""), validate_only=True)
    )
    yield case("two that collide", 7, create(topic("c.c"), topic("c_c"), validate_only=True))
    yield case("existing name, not validated", 7, create(topic("full")))
