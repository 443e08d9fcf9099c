"""All options of the source: those of Spark's own Kafka source, and a few more.

Names are those of Spark's own source and ignore case. `columns`, `pushFilters`, `groupId` and
`groupIdPrefix` exist only here. An unknown option whose name is close to a known one is
rejected as a typing error.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from pyspark_ottla.options.commit_group import CommitGroup, commit_group
from pyspark_ottla.options.kafka_options import PREFIX, KafkaOptions, kafka_options
from pyspark_ottla.options.offset_spec import (
    EARLIEST,
    ENDING_OPTIONS,
    LATEST,
    OffsetSpec,
    check_batch,
    ending_spec,
    starting_spec,
)
from pyspark_ottla.options.option_values import OptionError, boolean, duration_ms, positive
from pyspark_ottla.options.subscription import STRATEGIES, Subscription, subscription
from pyspark_ottla.schema import columns

KNOWN = (
    *STRATEGIES,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    *ENDING_OPTIONS,
    "failOnDataLoss",
    "includeHeaders",
    "columns",
    "pushFilters",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "maxBytesPerPartition",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "groupId",
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "partition.metadata.cache.ttl.ms",
)
_STREAM_ONLY = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "maxBytesPerPartition",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
)
_CLOSE = 0.85
DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60_000
DEFAULT_ATTEMPTS = 3
DEFAULT_ATTEMPT_INTERVAL_MS = 1_000
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SourceOptions:
    """The options that batch and streaming queries share."""

    subscription: Subscription
    kafka: KafkaOptions
    columns: tuple[str, ...]
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    attempts: int
    attempt_interval_ms: int


@dataclass(frozen=True)
class BatchOptions:
    """The options of a batch query. `start` and `end` are looked up when the query is planned."""

    source: SourceOptions
    start: OffsetSpec
    end: OffsetSpec
    push_filters: bool = False


@dataclass(frozen=True)
class StreamOptions:
    """The options of a streaming query.

    They say where a new query starts, how much a trigger reads and which group shows progress.
    """

    source: SourceOptions
    start: OffsetSpec
    max_offsets: int | None
    min_offsets: int | None
    max_trigger_delay_ms: int
    group: CommitGroup
    max_bytes: int | None = None
    max_bytes_per_partition: int | None = None


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """Return the options that every query has. Raise OptionError for an invalid one."""
    _check_spelling(options)
    return SourceOptions(
        subscription=subscription(options),
        kafka=kafka_options(options),
        columns=columns(options),
        fail_on_data_loss=boolean(options, "failOnDataLoss", True),
        min_partitions=positive(options, "minPartitions"),
        max_records_per_partition=positive(options, "maxRecordsPerPartition"),
        attempts=positive(options, "fetchOffset.numRetries") or DEFAULT_ATTEMPTS,
        attempt_interval_ms=duration_ms(
            options, "fetchOffset.retryIntervalMs", DEFAULT_ATTEMPT_INTERVAL_MS
        ),
    )


def batch_options(options: Mapping[str, str]) -> BatchOptions:
    """Return the options of a batch query."""
    start = starting_spec(options, EARLIEST)
    end = ending_spec(options)
    check_batch(start, end)
    source = source_options(options)
    for name in _STREAM_ONLY:
        if name in options:
            _log.warning("%s has no effect in a batch query", name)
    return BatchOptions(source, start, end, boolean(options, "pushFilters", False))


def stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Return the options of a streaming query."""
    for name in ENDING_OPTIONS:
        if name in options:
            raise OptionError(
                f"{name} is for batch queries: a streaming query has no end. Remove the option"
            )
    source = source_options(options)
    most = positive(options, "maxOffsetsPerTrigger")
    least = positive(options, "minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise OptionError(
            f"minOffsetsPerTrigger ({least}) is more than maxOffsetsPerTrigger ({most}):"
            " lower the first or raise the second"
        )
    return StreamOptions(
        source=source,
        start=starting_spec(options, LATEST),
        max_offsets=most,
        min_offsets=least,
        max_trigger_delay_ms=duration_ms(options, "maxTriggerDelay", DEFAULT_MAX_TRIGGER_DELAY_MS),
        group=commit_group(options, source.kafka.group_id),
        max_bytes=positive(options, "maxBytesPerTrigger"),
        max_bytes_per_partition=positive(options, "maxBytesPerPartition"),
    )


def _check_spelling(options: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in KNOWN}
    for name in options:
        lowered = name.lower()
        if lowered in known or lowered.startswith(PREFIX):
            continue
        if near := get_close_matches(lowered, known, 1, _CLOSE):
            raise OptionError(f"there is no option {name}; did you mean {known[near[0]]}?")
