"""ApiVersions, Metadata and other requests that describe a cluster, and FindCoordinator."""

from __future__ import annotations

from collections.abc import Iterator

from compare.case import Case, Raw, Seen, asking, case, in_versions
from ottla.model.ids import ZERO_UUID
from ottla.wire.apis import ApiKey
from ottla.wire.message import Message
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    RequestCursor,
    TopicRequest,
)
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic


def metadata(*names: str, create: bool = False, operations: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=operations,
        include_cluster_authorized_operations=operations,
    )


def with_id(topic_id: bytes, name: str | None = None) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=name)])


def partitions_of(
    *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsRequest:
    after = None
    if cursor is not None:
        after = RequestCursor(topic_name=cursor[0], partition_index=cursor[1])
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=after,
    )


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _api_versions()
    yield from _metadata()
    yield from _describe_cluster()
    yield from _topic_partitions()
    yield from _log_dirs()
    yield from _moves()
    yield from _coordinators()


def _api_versions() -> Iterator[Case]:
    plain = ApiVersionsRequest(client_software_name="compare", client_software_version="1.0")
    yield from in_versions("plain", (0, 1, 2, 3, 4), plain)
    yield case("no name", 3, ApiVersionsRequest(client_software_version="1"))
    yield case(
        "bad name", 3, ApiVersionsRequest(client_software_name="a b", client_software_version="1")
    )
    yield case(
        "bad version", 4, ApiVersionsRequest(client_software_name="a", client_software_version="-")
    )
    yield case("unknown version", 99, Raw(ApiKey.API_VERSIONS, b""))
    yield case("cut off", 3, Raw(ApiKey.API_VERSIONS, b"\x09comp"))
    yield case("version 99", 99, Raw(ApiKey.METADATA, b""))
    yield case("cut off", 9, Raw(ApiKey.METADATA, b"\x05"))
    yield case("bytes too many", 1, Raw(ApiKey.METADATA, b"\x00\x00\x00\x00xyz"))
    yield case("empty body", 1, Raw(ApiKey.METADATA, b""))


def _metadata() -> Iterator[Case]:
    yield from in_versions("a topic", range(14), metadata("full"))
    yield from in_versions("unknown topic", (0, 1, 4, 9, 12), metadata("nowhere"))
    yield from in_versions("no topics", (0, 1, 12), metadata())
    yield from in_versions("all topics", (1, 9, 13), MetadataRequest(topics=None))
    yield from in_versions(
        "authorized operations", (8, 10, 11, 13), metadata("full", operations=True)
    )
    yield case("topic twice", 12, metadata("full", "full"))
    for name in ("", ".", "a b", "n" * 250):
        yield case(f"bad name {name[:5]!r}", 12, metadata(name))
        yield case(f"bad name {name[:5]!r} to create", 12, metadata(name, create=True))
    yield case("internal topic", 12, metadata("__consumer_offsets"))
    yield case("unknown internal topic", 12, metadata("__transaction_state"))
    for version in (10, 11, 12, 13):
        yield asking("by id", version, MetadataRequest, lambda seen: with_id(seen.topic_id("full")))
        yield case("by unknown id", version, with_id(b"\x01" * 16))
        yield case("null name and no id", version, with_id(ZERO_UUID))
        yield asking(
            "by id and name", version, MetadataRequest,
            lambda seen: with_id(seen.topic_id("full"), "full"),
        )  # fmt: skip
    yield case("name and an unknown id", 12, with_id(b"\x01" * 16, "full"))
    mixed = metadata("full")
    mixed.topics = [*(mixed.topics or ()), MetadataRequestTopic(topic_id=b"\x01" * 16, name=None)]
    yield case("a name and an id", 12, mixed)


def _describe_cluster() -> Iterator[Case]:
    yield from in_versions("brokers", (0, 1, 2), DescribeClusterRequest())
    for version in (1, 2):
        yield case("controllers", version, DescribeClusterRequest(endpoint_type=2))
        yield case("endpoint type 0", version, DescribeClusterRequest(endpoint_type=0))
        yield case("endpoint type 3", version, DescribeClusterRequest(endpoint_type=3))
    yield case("fenced brokers", 2, DescribeClusterRequest(include_fenced_brokers=True))
    yield case("operations", 1, DescribeClusterRequest(include_cluster_authorized_operations=True))


def _topic_partitions() -> Iterator[Case]:
    yield case("a topic", 0, partitions_of("full"))
    yield case("all topics", 0, partitions_of())
    yield case("two topics", 0, partitions_of("full", "empty"))
    yield case("topic twice", 0, partitions_of("empty", "empty"))
    yield case("unknown topic", 0, partitions_of("nowhere"))
    yield case("unknown and known", 0, partitions_of("nowhere", "full"))
    yield case("bad name", 0, partitions_of("a b"))
    yield case("empty name", 0, partitions_of(""))
    for limit in (1, 2, 3, 4, 0, -1):
        yield case(f"limit {limit}", 0, partitions_of("empty", "full", limit=limit))
    for cursor in (
        ("full", 1), ("full", 0), ("full", 2), ("full", 3), ("full", 99), ("full", -1),
        ("empty", -5), ("", 0), ("", -1), ("fulk", 1), ("fulm", 1), ("zzz", 0), ("nowhere", 0),
    ):  # fmt: skip
        yield case(f"cursor {cursor}", 0, partitions_of("empty", "full", cursor=cursor))
    yield case("all from a cursor", 0, partitions_of(cursor=("full", 1)))
    yield case("all from an unknown cursor", 0, partitions_of(cursor=("fulk", 1)))
    yield case("cursor and limit", 0, partitions_of("empty", "full", limit=1, cursor=("empty", 1)))
    yield case("unknown topic at the limit", 0, partitions_of("empty", "nowhere", limit=2))


def _log_dirs() -> Iterator[Case]:
    def describe(topic: str, *indexes: int) -> DescribeLogDirsRequest:
        return DescribeLogDirsRequest(
            topics=[DescribableLogDirTopic(topic=topic, partitions=list(indexes))]
        )

    yield from in_versions("a topic", (1, 2, 3, 4, 5), describe("full", 0, 1, 2))
    yield case("all", 4, DescribeLogDirsRequest(topics=None))
    yield case("no topics", 4, DescribeLogDirsRequest())
    yield case("unknown topic", 4, describe("nowhere", 0))
    yield case("unknown partition", 4, describe("full", 9))
    yield case("no partitions", 4, describe("full"))
    yield case("partition twice", 4, describe("empty", 0, 0))


def _moves() -> Iterator[Case]:
    """Move replicas to a directory: the one that they are in, or unknown ones."""

    def remember(seen: Seen, answer: Message) -> None:
        assert isinstance(answer, DescribeLogDirsResponse)
        seen.values["directory"] = answer.results[0].log_dir

    def move(name: str, *topics: tuple[str, int], path: str | None = None) -> Case:
        def ask(seen: Seen) -> Message:
            moved = [AlterReplicaLogDirTopic(name=t, partitions=[index]) for t, index in topics]
            directory = seen.text("directory") if path is None else path
            return AlterReplicaLogDirsRequest(
                dirs=[AlterReplicaLogDir(path=directory, topics=moved)]
            )

        return asking(name, 2, AlterReplicaLogDirsRequest, ask)

    yield case("no topic, again", 4, DescribeLogDirsRequest(), remember=remember)
    yield move("to where it is", ("full", 0))
    yield move("unknown topic and partition", ("full", 0), ("full", 9), ("nowhere", 0))
    yield move("unknown directory", ("full", 0), ("nowhere", 0), path="/nowhere")
    yield move("relative directory", ("full", 0), path="here")
    yield move("no topics")
    yield case("no directories", 2, AlterReplicaLogDirsRequest())


def _coordinators() -> Iterator[Case]:
    yield from in_versions("a group", (0, 1, 2, 3), FindCoordinatorRequest(key="g"))
    yield from in_versions("groups", (4, 5, 6), FindCoordinatorRequest(coordinator_keys=["g", "h"]))
    yield case("no groups", 4, FindCoordinatorRequest())
    yield case("group twice", 4, FindCoordinatorRequest(coordinator_keys=["g", "g"]))
    yield case("empty group", 4, FindCoordinatorRequest(coordinator_keys=[""]))
    yield case("empty group", 1, FindCoordinatorRequest(key=""))
    for kind in (3, -1):
        yield case(
            f"key type {kind}", 4, FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"])
        )
        yield case(f"key type {kind}", 1, FindCoordinatorRequest(key_type=kind, key="g"))
    yield case("share key", 5, FindCoordinatorRequest(key_type=2, coordinator_keys=["g"]))
    yield case("share key", 6, FindCoordinatorRequest(key_type=2, coordinator_keys=["g"]))
    yield case("bad share key", 6, FindCoordinatorRequest(key_type=2, coordinator_keys=["g:x:y"]))
