"""Records that are gone before they were read: how much, of which partition, and why.

With `failOnDataLoss` (the default) the query fails with all that is known; without it the
same words are a warning and the query goes on with what is there, as Spark's own Kafka
source does.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import NamedTuple

from ottla.model.ids import TopicPartition
from pyspark_ottla.errors import DataLoss

ADVICE = (
    'To go on with what is there, set the option "failOnDataLoss" to "false";'
    " to read from the start again, begin with a new checkpoint."
)
_log = logging.getLogger(__name__)


class Why(Enum):
    """What happened to the records, in the words of the message."""

    LOG_START_MOVED = "retention or DeleteRecords has removed them"
    TOPIC_DELETED = "the topic was deleted"
    PARTITION_GONE = "the partition is not there any more"
    TOPIC_RECREATED = "the topic was deleted and created again"
    LOG_TRUNCATED = (
        "the log ends before them: the topic was deleted and created again, a broker lost data,"
        " or the offset was never right"
    )


class Loss(NamedTuple):
    """Offsets [start, end) of a partition that cannot be read; `end` is None when unknown."""

    partition: TopicPartition
    start: int
    end: int | None
    why: Why
    detail: str = ""

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.partition}: {self._amount()} lost: {self.why.value}{detail}"

    def _amount(self) -> str:
        if self.end is None:
            return f"the records from offset {self.start} on are"
        count = self.end - self.start
        if count == 1:
            return f"1 record (offset {self.start}) is"
        return f"{count} records (offsets {self.start} to {self.end - 1}) are"


def report_losses(losses: list[Loss], *, fail: bool) -> None:
    """Raise DataLoss for these, or only warn of them; nothing happens when there are none."""
    if not losses:
        return
    text = "; ".join(str(loss) for loss in losses)
    if fail:
        raise DataLoss(f"{text}. {ADVICE}")
    _log.warning("%s. Going on with what is there (failOnDataLoss is false).", text)
