"""CreatePartitions, DeleteTopics, and what else would disturb other requests. They come last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compare.case import Case, asking, case, in_versions
from compare.requests.topics import create, topic
from ottla.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest


def grow(
    name: str,
    count: int,
    replicas: Sequence[Sequence[int]] | None = None,
    validate_only: bool = True,
) -> CreatePartitionsRequest:
    assignments = None
    if replicas is not None:
        assignments = [CreatePartitionsAssignment(broker_ids=list(ids)) for ids in replicas]
    wanted = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    return CreatePartitionsRequest(topics=[wanted], timeout=5000, validate_only=validate_only)


def delete(*names: str) -> DeleteTopicsRequest:
    states = [DeleteTopicState(name=name) for name in names]
    return DeleteTopicsRequest(topic_names=names, topics=states, timeout=5000)


def delete_id(topic_id: bytes, name: str | None = None) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=topic_id)], timeout=5000
    )


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _partitions()
    yield from _deletions()
    # Kafka creates a topic for it, which must not be there for the requests before.
    transaction = FindCoordinatorRequest(key_type=1, key="t", coordinator_keys=["t"])
    yield from in_versions("a transaction", (1, 4), transaction)


def _partitions() -> Iterator[Case]:
    yield from in_versions("more", (0, 1, 2, 3), grow("grown", 3))
    yield case("with replicas", 3, grow("grown", 3, [[1], [1]]))
    yield case("as many", 3, grow("grown", 1))
    yield case("as many as there are", 3, grow("full", 3))
    yield case("fewer", 3, grow("full", 1))
    yield case("none", 3, grow("full", 0))
    yield case("negative", 3, grow("full", -1))
    yield from in_versions("unknown topic", (0, 3), grow("nowhere", 3))
    yield case("bad name", 3, grow("a b", 3))
    yield case("empty name", 3, grow("", 3))
    yield case("too few replicas", 3, grow("grown", 3, [[1]]))
    yield case("too many replicas", 3, grow("grown", 2, [[1], [1]]))
    yield case("no replicas", 3, grow("grown", 2, []))
    yield case("empty replicas", 3, grow("grown", 2, [[]]))
    yield case("unknown broker", 3, grow("grown", 2, [[9]]))
    yield case("broker twice", 3, grow("grown", 2, [[1, 1]]))
    yield case("two brokers", 3, grow("grown", 2, [[1, 2]]))
    yield case("no topics", 3, CreatePartitionsRequest(timeout=1000))
    twice = grow("grown", 2)
    twice.topics.append(twice.topics[0])
    yield case("topic twice", 3, twice)
    yield case("internal topic", 3, grow("__consumer_offsets", 5))
    yield case("for good", 3, grow("grown", 2, validate_only=False), changes=True)


def _deletions() -> Iterator[Case]:
    for version in (1, 2, 3, 4, 5, 6):
        name = f"short-lived-{version}"
        yield case(f"create {name}", 7, create(topic(name)), changes=True)
        yield case("a topic", version, delete(name), changes=True)
        yield case("a topic again", version, delete(name))
    yield case("create another", 7, create(topic("short-lived")), changes=True)
    yield case("name twice", 6, delete("short-lived", "short-lived"))
    yield asking("name and id", 6, DeleteTopicsRequest,
        lambda seen: delete_id(seen.topic_id("short-lived"), "short-lived"))  # fmt: skip
    yield asking("by id", 6, DeleteTopicsRequest,
        lambda seen: delete_id(seen.topic_id("short-lived")), changes=True)  # fmt: skip
    yield case("unknown id", 6, delete_id(b"\x01" * 16))
    yield case("neither name nor id", 6, delete_id(bytes(16)))
    yield case("name twice, old version", 5, delete("nowhere", "nowhere"))
    yield case("bad name", 6, delete("a b"))
    yield case("empty name", 6, delete(""))
    yield case("no topics", 6, delete())
    yield case("no topics", 1, delete())
    yield case("name after it", 1, delete("short-lived"))
