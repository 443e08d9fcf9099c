"""Names the leaders in responses to requests that went to the wrong broker (KIP-951).

A client that gets NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH together with the new leader sends
its request there at once, without a Metadata request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.codecs.current_leaders import BrokerEndpoint, Leader
from ottla.model.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.node import Node

LEADER_ERRORS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class CurrentLeaders:
    """The leaders that one response names."""

    __slots__ = ("_leaders", "_listener", "_node")

    def __init__(self, node: Node, listener: str) -> None:
        self._node = node
        self._listener = listener
        self._leaders: dict[tuple[bytes, int], Leader] = {}

    def add(self, key: bytes, index: int, *, is_id: bool) -> Leader | None:
        """Look up the leader of a partition; `key` is the topic's id, or its name in UTF-8.

        While new metadata is taken over, a replica here knows its leader before the image does.
        If the response named the previous leader, the client would not ask for metadata.
        """
        topics, image = self._node.topics, self._node.image
        hosted = (topics.by_id if is_id else topics.by_key).get(key)
        replica = None if hosted is None else hosted.partitions.get(index)
        if replica is not None:
            leader = replica.leader_id, replica.leader_epoch
        else:
            topic = image.topics_by_id.get(key) if is_id else image.topics.get(key.decode())
            if topic is None or index >= len(topic.partitions):
                return None
            leader = topic.partitions[index].leader, topic.partitions[index].leader_epoch
        self._leaders[key, index] = leader
        return leader

    def of(self, key: bytes, index: int) -> Leader | None:
        """Return the leader of a partition that was added."""
        return self._leaders.get((key, index))

    def endpoints(self) -> list[BrokerEndpoint]:
        """Return where the client reaches the leaders."""
        ids = {leader_id for leader_id, _ in self._leaders.values()}
        return [each for each in self._node.brokers_for(self._listener) if each[0] in ids]
