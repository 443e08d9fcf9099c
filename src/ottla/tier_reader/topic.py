"""`open_topic`: a topic's remote segments, read without a broker."""

from __future__ import annotations

from ottla.model.ids import uuid_from_text, uuid_to_text
from ottla.server.object_stores.blocking_store import BlockingStore, open_blocking_store
from ottla.tier_reader.errors import NoSuchTopic
from ottla.tier_reader.listing import find_partitions, find_topic_id, list_partition
from ottla.tier_reader.partition import RemotePartition


class RemoteTopic:
    """The remote part of a topic."""

    def __init__(self, store: BlockingStore, name: str, topic_id: bytes) -> None:
        self._store = store
        self.name = name
        self.topic_id = topic_id
        self.partitions = tuple(find_partitions(store, name, topic_id))
        """The numbers of the partitions that have remote objects."""
        if not self.partitions:
            raise NoSuchTopic(f"the store has nothing of {name} with id {uuid_to_text(topic_id)}")

    def partition(self, number: int) -> RemotePartition:
        """List the segments of a partition. Call it again to see newer ones."""
        return RemotePartition(
            self._store, list_partition(self._store, self.name, self.topic_id, number)
        )


def open_topic(url: str, topic: str, topic_id: str | None = None) -> RemoteTopic:
    """Return the remote part of a topic in the store at `url`.

    `topic_id`, in Kafka's text form, is needed only if the store has several topics with this
    name: a topic was deleted and created again. Raise NoSuchTopic, ValueError for a URL or an
    id that is invalid, ObjectStoreError, and ImportError if the extra `tier` is needed.
    """
    store = open_blocking_store(url, create=False)
    known = find_topic_id(store, topic) if topic_id is None else uuid_from_text(topic_id)
    return RemoteTopic(store, topic, known)
