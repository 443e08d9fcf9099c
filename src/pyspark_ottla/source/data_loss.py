"""Reports records that were removed before the query read them, on the driver.

With `failOnDataLoss` (the default) the query fails, and the error says how many records of
which partition are lost, and why. Without it the same text is a warning and the query
continues, as with Spark's own Kafka source.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import NamedTuple

from ottla.model.ids import TopicPartition
from pyspark_ottla.errors import DataLoss

ADVICE = (
    'To continue with the records that are left, set the option "failOnDataLoss" to "false".'
    " To read from the start again, use a new checkpoint."
)
_log = logging.getLogger(__name__)


class LossReason(Enum):
    """What happened to the records, as text for the message."""

    LOG_START_MOVED = "retention or DeleteRecords has removed them"
    TOPIC_DELETED = "the topic was deleted"
    PARTITION_GONE = "the partition does not exist any more"
    TOPIC_RECREATED = "the topic was deleted and created again"
    LOG_TRUNCATED = (
        "the log ends before them: the topic was deleted and created again, a broker lost data,"
        " or the offset was never valid"
    )


class Loss(NamedTuple):
    """The lost offsets [start, end) of a partition. `end` is None if it is unknown."""

    partition: TopicPartition
    start: int
    end: int | None
    reason: LossReason
    detail: str = ""

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.partition}: {self._amount()} lost: {self.reason.value}{detail}"

    def _amount(self) -> str:
        if self.end is None:
            return f"the records from offset {self.start} on are"
        count = self.end - self.start
        if count == 1:
            return f"1 record (offset {self.start}) is"
        return f"{count} records (offsets {self.start} to {self.end - 1}) are"


def report_losses(losses: list[Loss], *, fail: bool) -> None:
    """Raise DataLoss, or log a warning if `fail` is false. Do nothing without losses."""
    if not losses:
        return
    text = "; ".join(str(loss) for loss in losses)
    if fail:
        raise DataLoss(f"{text}. {ADVICE}")
    _log.warning("%s. Continuing with the records that are left (failOnDataLoss is false).", text)
