"""Read the remote tier without a broker: see docs/remote-tier.md."""

from ottla.tier_reader.batch_stream import RemoteBatch
from ottla.tier_reader.errors import DamagedObject, MissingRecords, NoSuchTopic, TierError
from ottla.tier_reader.partition import RemotePartition
from ottla.tier_reader.topic import RemoteTopic, open_topic

__all__ = [
    "DamagedObject",
    "MissingRecords",
    "NoSuchTopic",
    "RemoteBatch",
    "RemotePartition",
    "RemoteTopic",
    "TierError",
    "open_topic",
]
