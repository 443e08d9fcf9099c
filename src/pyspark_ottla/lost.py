"""Offsets that were planned to be read and are gone: an error or a warning, in the same words."""

from __future__ import annotations

import logging

from pyspark_ottla.errors import DataLoss
from pyspark_ottla.position import Position

_logger = logging.getLogger(__name__)

_ADVICE = (
    "Some data may have been lost. To go on with what is there, set the option failOnDataLoss to"
    " false"
)


def lose(position: Position, up_to: int, why: str, *, fail: bool) -> None:
    """The offsets from the position to `up_to` are gone: raise, or warn and go on behind them."""
    wanted = position.range
    up_to = min(up_to, wanted.end)
    words = (
        f"{wanted.topic}-{wanted.partition}: {up_to - position.offset} offsets from"
        f" {position.offset} to {up_to - 1} cannot be read, {why}"
    )
    if fail:
        raise DataLoss(f"{words}. {_ADVICE}")
    _logger.warning("%s; going on without them (failOnDataLoss is false)", words)
    position.offset = up_to
    if up_to >= wanted.end:
        position.finish()
