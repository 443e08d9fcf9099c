"""Identifiers of topics, partitions and clusters, in Kafka's notation."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

UUID_BYTES = 16
ZERO_UUID = bytes(UUID_BYTES)
UNKNOWN_DIRECTORY = ZERO_UUID
"""Stands for a log directory in metadata that is older than directory ids (KIP-858)."""
UNASSIGNED_DIRECTORY = bytes(15) + b"\x01"
"""The broker has not told yet in which log directory it has a replica."""
LOST_DIRECTORY = bytes(15) + b"\x02"
"""The log directory of a replica, or its log, has failed."""
METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = bytes(15) + b"\x01"
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})

NO_OFFSET = -1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1


class TopicPartition(NamedTuple):
    """A partition of a topic. Its text is the name of its directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def uuid_to_text(uuid: bytes) -> str:
    """Return Kafka's text form of an id: URL-safe base64 without padding."""
    return urlsafe_b64encode(uuid).rstrip(b"=").decode()


def uuid_from_text(text: str) -> bytes:
    """Return the 16 bytes of an id in Kafka's text form. Raise ValueError if it is invalid."""
    uuid = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(uuid) != UUID_BYTES:
        raise ValueError(f"{text!r} is not a Kafka id: it holds {len(uuid)} bytes, not 16")
    return uuid
