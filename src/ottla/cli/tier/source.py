"""What `ottla tier` looks at: a store, a topic in it, and what the brokers say about it.

With `--tier` and without brokers, the store alone is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from ottla.cli.errors import DataError, UsageError
from ottla.cli.options import connect
from ottla.client.cluster import Client
from ottla.client.configs import Resource, ResourceType, describe_configs
from ottla.client.topics.log_sizes import log_sizes
from ottla.client.topics.tiered_offsets import TieredOffsets, tiered_offsets
from ottla.client.topics.topics import TopicDescription, describe_topics
from ottla.model.ids import TopicPartition, uuid_from_text
from ottla.ports import ObjectStoreError
from ottla.server.object_stores.blocking_store import BlockingStore, open_blocking_store
from ottla.tier_reader.errors import TierError
from ottla.tier_reader.listing import (
    PartitionListing,
    find_partitions,
    find_topic_id,
    list_partition,
)

URL_SETTING: Final = "remote.log.storage.url"


class LocalPart(NamedTuple):
    """What the leader of a partition says: its offsets, and the size of its log on disk."""

    offsets: TieredOffsets
    size: int | None


class TierSource(NamedTuple):
    """A topic in a store."""

    url: str
    store: BlockingStore
    topic: str
    topic_id: bytes
    local: dict[int, LocalPart]
    """What the brokers say about each partition; empty if they were not asked."""

    def partitions(self) -> list[int]:
        """Return the numbers of all partitions, sorted."""
        return sorted({*find_partitions(self.store, self.topic, self.topic_id), *self.local})

    def listings(self) -> Iterator[PartitionListing]:
        """List one partition after the other."""
        for number in self.partitions():
            yield list_partition(self.store, self.topic, self.topic_id, number)


@contextmanager
def tier_errors() -> Iterator[None]:
    """Turn errors of the store, and of what is in it, into messages of the command."""
    try:
        yield
    except (TierError, ObjectStoreError) as error:
        raise DataError(str(error)) from None


def find_tier(
    topic: str,
    url: str | None,
    topic_id: str | None,
    bootstrap_server: str | None,
    command_config: Path | None,
) -> TierSource:
    """Return the topic's part of the store. Brokers are asked unless only `--tier` is given."""
    known_id = None if topic_id is None else _parse_id(topic_id)
    if url is not None and bootstrap_server is None and command_config is None:
        store = _open(url)
        return TierSource(url, store, topic, known_id or find_topic_id(store, topic), {})
    with connect(bootstrap_server, command_config) as client:
        (described,) = describe_topics(client, [topic])
        url = url or _url_of(client)
        local = _local_parts(client, described)
    found = known_id or _parse_id(described.topic_id or "")
    return TierSource(url, _open(url), topic, found, local)


def tier_of(client: Client, described: TopicDescription) -> TierSource:
    """Return a topic's part of the store that the brokers name."""
    url = _url_of(client)
    return TierSource(url, _open(url), described.name, _parse_id(described.topic_id or ""), {})


def _open(url: str) -> BlockingStore:
    try:
        return open_blocking_store(url, create=False)
    except ValueError as error:
        raise UsageError(f"--tier: {error}") from None
    except ImportError:
        raise DataError(f"{url} needs the extra tier: pip install 'ottla[tier]'") from None


def _parse_id(text: str) -> bytes:
    try:
        return uuid_from_text(text)
    except ValueError as error:
        raise UsageError(f"--topic-id: {error}") from None


def _url_of(client: Client) -> str:
    """Return the URL of the tier according to the brokers' settings."""
    deadline = client.deadline("settings")
    client.any(deadline)
    for node_id in sorted(client.brokers):
        resource = Resource(ResourceType.BROKER, str(node_id))
        settings = describe_configs(client, [resource], deadline)[resource]
        url = next((each.value for each in settings if each.name == URL_SETTING), None)
        if url:
            return url
    raise DataError(
        f"the brokers have no remote tier ({URL_SETTING} is not set); name a store with --tier"
    )


def _local_parts(client: Client, described: TopicDescription) -> dict[int, LocalPart]:
    leaders = {
        TopicPartition(described.name, each.partition): each.leader for each in described.partitions
    }
    deadline = client.deadline("offsets")
    offsets = tiered_offsets(client, leaders, deadline)
    sizes = log_sizes(client, list(leaders), deadline)
    return {
        name.partition: LocalPart(offsets[name], sizes.get((leader, name)))
        for name, leader in leaders.items()
    }
