"""How many records and bytes a batch of a load has, and what a task reads of them.

Large batches give files of the target size. Bytes are bounded too, because records may be large:
batches and tasks of too many bytes fill memory and disks. A batch that failed twice is planned
again with less, because it may have been too large for the machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla_spark.loads.options.load_options import MIB, LoadOptions

RECORDS_A_CORE = 2_500_000
BYTES_A_CORE = 1024 * MIB
UPSERTED_RECORDS = 500_000
UPSERTED_BYTES = 256 * MIB
"""Upserts are merged in memory."""
SHRINK = 4


@dataclass(frozen=True)
class BatchSize:
    """The most records and bytes of a batch, and the most bytes of a task."""

    records: int
    size: int
    task_size: int = BYTES_A_CORE

    def options(self) -> dict[str, str]:
        """Return the options of the data source."""
        return {
            "maxOffsetsPerTrigger": str(self.records),
            "maxBytesPerTrigger": str(self.size),
            "maxBytesPerPartition": str(self.task_size),
        }


def batch_size(options: LoadOptions, cores: int, failures: int) -> BatchSize:
    """Return the size of the next batch after it has failed this many times in a row."""
    records = UPSERTED_RECORDS if options.upsert else RECORDS_A_CORE * cores
    size = UPSERTED_BYTES if options.upsert else BYTES_A_CORE * cores
    parts = SHRINK ** max(0, failures - 1)  # the first one may have had any cause
    return BatchSize(
        max(1, (options.max_records_per_batch or records) // parts),
        max(1, (options.max_bytes_per_batch or size) // parts),
        max(1, BYTES_A_CORE // parts),
    )
