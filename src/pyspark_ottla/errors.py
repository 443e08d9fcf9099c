"""What can go wrong while records are read, besides what `ottla.client.errors` names."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.client.errors import ClientError


class DataLoss(ClientError):
    """Offsets that were to be read are no longer there, and `failOnDataLoss` is true."""


class DamagedRecords(ClientError):
    """A batch whose bytes are not what its checksum or the format say."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(
            f"{topic}-{partition} has a damaged batch at offset {offset}: {reason}."
            " Read around it by giving starting and ending offsets, or restore the partition"
            " from another replica"
        )


class MissingTopics(ClientError):
    """Topics (or partitions) that a query names do not exist."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(
            f"there is no {', '.join(names)} in the cluster; create it first"
            f" (`ottla topics create {names[0]}`) or correct the name"
        )
