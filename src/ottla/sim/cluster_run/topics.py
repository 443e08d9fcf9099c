"""Which topics a run has, by their names, and what is promised about each kind.

topic-N   stay for the whole run, with clean elections: everything is checked
cold-N    like temp-N, in the remote tier, which is turned off and on
out-N     what transactions write, otherwise like topic-N
temp-N    are deleted and created again under the same name; each life has a history of its own
loose-N   like temp-N, with unclean elections: records may be lost, so nothing is promised but one
          leader an epoch, and equal replicas at the end
"""

from __future__ import annotations

from typing import Final

from ottla.metadata.image import MetadataImage
from ottla.sim.cluster_run.history import PartitionKey

LASTING: Final = "topic-"
OUTPUT: Final = "out-"
TEMPORARY: Final = "temp-"
LOOSE: Final = "loose-"
COLD: Final = "cold-"
INTERNAL: Final = "__"


def key_of(name: str, topic_id: bytes, index: int) -> PartitionKey:
    """Return the name of a partition's history: each life of a topic has its own."""
    if may_be_deleted(name):
        return f"{name}~{topic_id[-3:].hex()}", index
    return name, index


def may_be_deleted(name: str) -> bool:
    return name.startswith((TEMPORARY, LOOSE, COLD))


def is_loose(name: str) -> bool:
    """Return True if unclean elections are allowed."""
    return name.startswith(LOOSE)


def is_tiered(image: MetadataImage, name: str) -> bool:
    """Return True if a topic is in the remote tier."""
    return image.topic_config(name).get("remote.storage.enable") == "true"
