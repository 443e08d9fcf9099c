"""Blocks of producer ids for brokers: one record serves many ids (KIP-730)."""

from __future__ import annotations

from typing import NamedTuple

from ottla.controller.decision import Decision
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import ProducerIdsRecord
from ottla.model.errors import ApiError, ErrorCode

BLOCK_SIZE = 1000
_LAST_ID = 2**63 - 1


class ProducerIdBlock(NamedTuple):
    """`size` ids from `first` on, for one broker only."""

    first: int
    size: int


def allocate_producer_ids(
    image: MetadataImage, broker_id: int, broker_epoch: int
) -> Decision[ProducerIdBlock]:
    """Decide on the next block of ids for a broker."""
    first = image.next_producer_id
    if first > _LAST_ID - BLOCK_SIZE:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids were given away")
    record = ProducerIdsRecord(
        broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    return Decision([record], [ProducerIdBlock(first, BLOCK_SIZE)])
