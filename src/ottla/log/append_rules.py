"""The rules for a client's batch, and the changes that a topic's settings ask for.

`Log.append_as_leader` accepts the batches that need no change with one condition. For all
others `prepare` checks every rule in Kafka's order, so that the error names the right one.

Timestamps are checked in the batch header only (the first and the largest one), so a record in
the middle that is older than message.timestamp.before.max.ms is accepted. Records are read only
to find null keys in compacted topics; recompression takes the payload as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_TIMESTAMP
from ottla.records.batch import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CONTROL_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAGIC_V2,
    MAX_TIMESTAMP_OFFSET,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    Batch,
    CorruptBatch,
    crc_of,
    parse_header,
    seal,
)

if TYPE_CHECKING:
    from ottla.config.topic import LogConfig

CODEC_IDS: Final = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_MAX_CODEC: Final = 4
_NONE: Final[frozenset[int]] = frozenset()


class AppendRules:
    """The settings of a topic that concern appends, and the time bounds computed from them."""

    __slots__ = (
        "after_max_ms",
        "append_time",
        "before_max_ms",
        "codec",
        "is_compacted",
        "level",
        "log_append_time",
        "max_batch_bytes",
        "max_message_bytes",
        "newest_timestamp",
        "now_ms",
        "oldest_timestamp",
        "own_attributes",
        "plain_attributes",
        "segment_bytes",
    )

    def __init__(self, config: LogConfig) -> None:
        self.max_message_bytes = config.max_message_bytes
        self.segment_bytes = config.segment_bytes
        self.max_batch_bytes = min(self.max_message_bytes, self.segment_bytes)
        self.before_max_ms = config.message_timestamp_before_max_ms
        self.after_max_ms = config.message_timestamp_after_max_ms
        self.log_append_time = config.message_timestamp_type == "LogAppendTime"
        self.is_compacted = "compact" in config.cleanup_policy
        self.codec = CODEC_IDS.get(config.compression_type)
        """The codec that batches are stored in; None keeps the producer's."""
        self.level = _level(config)
        self.own_attributes = self._own()
        """Attributes of the broker's own batches that are stored unchanged."""
        self.plain_attributes = _NONE if self.is_compacted else self.own_attributes
        """The same for clients' batches, whose keys are checked if the topic is compacted."""
        self.set_time(0)

    def set_time(self, now_ms: int) -> None:
        """Compute the bounds of timestamps, once a millisecond."""
        self.now_ms = now_ms
        self.oldest_timestamp = now_ms - self.before_max_ms
        self.newest_timestamp = now_ms + self.after_max_ms
        self.append_time = now_ms if self.log_append_time else NO_TIMESTAMP
        """The timestamp that batches get now, -1 if they keep their own."""

    def _own(self) -> frozenset[int]:
        if self.log_append_time:
            return _NONE
        return frozenset(range(_MAX_CODEC + 1) if self.codec is None else (self.codec,))

    def prepare(
        self, buffer: bytearray, view: memoryview, start: int, end: int, now_ms: int
    ) -> tuple[bytearray, memoryview, int, int]:
        """Check the batch at [start, end) and change it as the topic asks; raises ApiError.

        Returns where the batch is now: in place, or in a buffer of its own.
        """
        batch = _one_batch(buffer, start, end)
        self._check_size(end - start)
        if crc_of(view, start, end) != batch.crc:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, "The CRC of the batch does not match")
        _check_client_batch(batch)
        self._check_timestamps(batch, now_ms)
        if self.is_compacted:
            _refuse_null_keys(buffer, start, end)
        if self.codec is not None and self.codec != batch.compression:
            buffer = self._recompress(buffer, start, end)
            view, start, end = memoryview(buffer), 0, len(buffer)
            self._check_size(end)
        if self.log_append_time:
            _stamp(buffer, start, end, now_ms)
        elif batch.attributes & TIMESTAMP_TYPE_MASK:  # the topic decides the type
            buffer[start + ATTRIBUTES_OFFSET + 1] &= ~TIMESTAMP_TYPE_MASK & 0xFF
            seal(buffer, start, end)
        return buffer, view, start, end

    def _check_size(self, size: int) -> None:
        if size > self.max_message_bytes:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The batch has {size} bytes, but max.message.bytes is {self.max_message_bytes}",
            )
        if size > self.segment_bytes:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"The batch has {size} bytes, but segment.bytes is {self.segment_bytes}",
            )

    def _check_timestamps(self, batch: Batch, now_ms: int) -> None:
        if self.log_append_time:
            if batch.attributes & TIMESTAMP_TYPE_MASK:
                raise ApiError(
                    ErrorCode.INVALID_TIMESTAMP, "Producers may not set the LogAppendTime type"
                )
            return
        oldest, newest = now_ms - self.before_max_ms, now_ms + self.after_max_ms
        for timestamp in (batch.base_timestamp, batch.max_timestamp):
            if timestamp != -1 and not oldest <= timestamp <= newest:
                raise ApiError(
                    ErrorCode.INVALID_TIMESTAMP,
                    f"Timestamp {timestamp} is not within [{oldest}, {newest}], see"
                    " message.timestamp.before.max.ms and message.timestamp.after.max.ms",
                )

    def _recompress(self, buffer: bytearray, start: int, end: int) -> bytearray:
        from ottla.records.compression import recompress

        assert self.codec is not None
        try:
            return recompress(buffer, start, end, self.codec, self.level)
        except CorruptBatch as error:
            raise ApiError(ErrorCode.INVALID_RECORD, f"Cannot recompress: {error}") from None


def _one_batch(buffer: bytearray, start: int, end: int) -> Batch:
    """Return the header of the one v2 batch that fills [start, end)."""
    if end - start <= MAGIC_OFFSET:
        raise ApiError(ErrorCode.INVALID_RECORD, "There is no batch in the request")
    magic = buffer[start + MAGIC_OFFSET]
    if magic in (0, 1):
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"Batches must have magic {MAGIC_V2}, not {magic}"
            f"Batches must have magic {MAGIC_V2}, but this one has {magic}",
        )
    if magic != MAGIC_V2:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"Unknown magic {magic}")
    if end - start < HEADER_SIZE:
        raise ApiError(ErrorCode.INVALID_RECORD, "The batch is shorter than its header")
    batch = parse_header(buffer, start)
    if batch.batch_length != end - start - LOG_OVERHEAD:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"Expected one batch of {end - start} bytes, but its header says {batch.size}",
        )
    if batch.base_offset != 0:
        raise ApiError(
            ErrorCode.INVALID_RECORD, f"The base offset must be 0, but it is {batch.base_offset}"
        )
    return batch


def _check_client_batch(batch: Batch) -> None:
    if batch.compression > _MAX_CODEC:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown codec {batch.compression}")
    if batch.record_count <= 0 or batch.record_count != batch.last_offset_delta + 1:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"{batch.record_count} records do not have offsets 0 to {batch.last_offset_delta}",
        )
    if batch.attributes & CONTROL_MASK:
        raise ApiError(ErrorCode.INVALID_RECORD, "Clients may not write control batches")
    if batch.producer_id >= 0 and (batch.base_sequence < 0 or batch.producer_epoch < 0):
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"Producer {batch.producer_id} has epoch {batch.producer_epoch} and sequence"
            f" {batch.base_sequence}",
        )
    if batch.attributes & TRANSACTIONAL_MASK:
        raise ApiError(
            ErrorCode.INVALID_TXN_STATE, "The batch is not part of an ongoing transaction"
        )


def _refuse_null_keys(buffer: bytearray, start: int, end: int) -> None:
    from ottla.records.record import null_keys

    try:
        found = null_keys(buffer, start, end)
    except CorruptBatch as error:
        raise ApiError(ErrorCode.INVALID_RECORD, f"Cannot read the records: {error}") from None
    if found:
        raise ApiError(
            ErrorCode.INVALID_RECORD, "Records of a compacted topic must have a key", found
        )


def _stamp(buffer: bytearray, start: int, end: int, now_ms: int) -> None:
    """Set the time of the append as timestamp, and the CRC that goes with it."""
    buffer[start + ATTRIBUTES_OFFSET + 1] |= TIMESTAMP_TYPE_MASK
    at = start + MAX_TIMESTAMP_OFFSET
    buffer[at : at + 8] = now_ms.to_bytes(8, "big", signed=True)
    seal(buffer, start, end)


def _level(config: LogConfig) -> int | None:
    match config.compression_type:
        case "gzip":
            return config.compression_gzip_level
        case "lz4":
            return config.compression_lz4_level
        case "zstd":
            return config.compression_zstd_level
    return None


assert COMPRESSION_MASK > _MAX_CODEC
