"""DescribeLogDirs with what Ottla adds on request: compaction, the remote tier, and segments.

The additions are tagged fields (KIP-482) with tags from 10,000 on, which Kafka does not use. Only a
client that asks for them gets them, and a broker of Kafka leaves them out: then they have
their defaults (ADR 23).
"""

from __future__ import annotations

from ottla.wire.message import Field, Items, Message
from ottla.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

UNKNOWN = -1
_FLEXIBLE = (2, 5)


class LogDirsRequest(DescribeLogDirsRequest):
    """The request. It may ask for compaction and the remote part of each log, or for segments."""

    __slots__ = ("with_details", "with_segments")
    FIELDS = (  # type: ignore[assignment]
        *DescribeLogDirsRequest.FIELDS,
        Field("with_segments", "bool", _FLEXIBLE, tag=10_000),
        Field("with_details", "bool", _FLEXIBLE, tag=10_001),
    )

    def __init__(
        self,
        *,
        topics: Items[DescribableLogDirTopic] | None = (),
        with_segments: bool = False,
        with_details: bool = False,
    ) -> None:
        super().__init__(topics=topics)
        self.with_details = with_details
        self.with_segments = with_segments


class SegmentState(Message):
    """A segment of a log."""

    __slots__ = ("base_offset", "size")
    FIELDS = (Field("base_offset", "int64", (1, 5)), Field("size", "int64", (1, 5)))

    def __init__(self, *, base_offset: int = 0, size: int = 0) -> None:
        self.base_offset = base_offset
        self.size = size


class LogDirsPartition(DescribeLogDirsPartition):
    """A log. Unless its topic is compacted, the numbers of the cleaner are unknown.

    `remote_bytes` is the size of its segments in the remote tier, unknown unless it is tiered.
    `remote_first_dirty_offset` is unknown unless it is both, and has remote segments.
    """

    __slots__ = (
        "clean_bytes",
        "cleanable_bytes",
        "first_dirty_offset",
        "last_clean_ms",
        "remote_bytes",
        "remote_first_dirty_offset",
        "segments",
        "uncleanable_reason",
    )
    FIELDS = (  # type: ignore[assignment]
        *DescribeLogDirsPartition.FIELDS,
        Field("first_dirty_offset", "int64", _FLEXIBLE, tag=10_000),
        Field("clean_bytes", "int64", _FLEXIBLE, tag=10_001),
        Field("cleanable_bytes", "int64", _FLEXIBLE, tag=10_002),
        Field("last_clean_ms", "int64", _FLEXIBLE, tag=10_003),
        Field("uncleanable_reason", "string", _FLEXIBLE, nullable=_FLEXIBLE, tag=10_004),
        Field("segments", "array", _FLEXIBLE, of=SegmentState, nullable=_FLEXIBLE, tag=10_005),
        Field("remote_bytes", "int64", _FLEXIBLE, tag=10_006),
        Field("remote_first_dirty_offset", "int64", _FLEXIBLE, tag=10_007),
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        partition_size: int = 0,
        offset_lag: int = 0,
        is_future_key: bool = False,
        first_dirty_offset: int = UNKNOWN,
        clean_bytes: int = UNKNOWN,
        cleanable_bytes: int = UNKNOWN,
        last_clean_ms: int = UNKNOWN,
        uncleanable_reason: str | None = None,
        segments: list[SegmentState] | None = None,
        remote_bytes: int = UNKNOWN,
        remote_first_dirty_offset: int = UNKNOWN,
    ) -> None:
        super().__init__(
            partition_index=partition_index,
            partition_size=partition_size,
            offset_lag=offset_lag,
            is_future_key=is_future_key,
        )
        self.first_dirty_offset = first_dirty_offset
        self.clean_bytes = clean_bytes
        self.cleanable_bytes = cleanable_bytes
        self.last_clean_ms = last_clean_ms
        self.uncleanable_reason = uncleanable_reason
        self.segments = segments
        self.remote_bytes = remote_bytes
        self.remote_first_dirty_offset = remote_first_dirty_offset


class LogDirsTopic(DescribeLogDirsTopic):
    """The logs of a topic in a directory."""

    __slots__ = ()
    FIELDS = (
        DescribeLogDirsTopic.FIELDS[0],
        Field("partitions", "array", (1, 5), of=LogDirsPartition),
    )


class LogDirsResult(DescribeLogDirsResult):
    """A log directory."""

    __slots__ = ()
    FIELDS = (
        *DescribeLogDirsResult.FIELDS[:2],
        Field("topics", "array", (1, 5), of=LogDirsTopic),
        *DescribeLogDirsResult.FIELDS[3:],
    )


class LogDirsResponse(DescribeLogDirsResponse):
    """The response."""

    __slots__ = ()
    FIELDS = (
        *DescribeLogDirsResponse.FIELDS[:2],
        Field("results", "array", (1, 5), of=LogDirsResult),
    )
