"""The errors of a read, in addition to those of `ottla.client.errors`."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.client.errors import ClientError


class DataLoss(ClientError):
    """Records were removed before the query read them, and `failOnDataLoss` is true."""


class DamagedRecords(ClientError):
    """The bytes of a batch do not match its checksum, or are not valid."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(
            f"{topic}-{partition} has a damaged batch at offset {offset}: {reason}."
            " To skip it, set starting and ending offsets around it. To repair it, restore the"
            " partition from another replica"
        )


class MissingTopics(ClientError):
    """A query names topics or partitions that do not exist."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(
            f"there is no {', '.join(names)} in the cluster; create it first"
            f" (`ottla topics create {names[0]}`) or correct the name"
        )
