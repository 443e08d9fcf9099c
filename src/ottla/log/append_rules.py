"""The rules for a client's batch, and the changes that a topic's settings ask for.

`Log.append_as_leader` accepts the batches that need no change with one condition. For all
others `prepare` checks every rule in Kafka's order, so that the error names the right one.

Timestamps are checked in the batch header only (the first and the largest one), so a record in
the middle that is older than message.timestamp.before.max.ms is accepted. Records are read only
to find null keys in compacted topics; recompression takes the payload as a whole.

Both take time. They are done at once for small batches that are not compressed, a few of them in
a wake-up. For all others `NeedsValidation` is raised: the caller lets a helper process do it
(`ottla.records.validation`), and appends what comes back.
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
    crc_of,
    parse_header,
    seal,
)

if TYPE_CHECKING:
    from ottla.config.topic import LogConfig
    from ottla.records.validation import Validation

CODEC_IDS: Final = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_MAX_CODEC: Final = 4
_NONE: Final[frozenset[int]] = frozenset()

MAX_INLINE_BYTES: Final = 16 * 1024
"""Larger batches are validated in a helper process: these take 0.5 ms, with zstd 22 1.5 ms."""
INLINE_BYTES_PER_MS: Final = 64 * 1024
"""How much is validated at once for each timestamp of appends: one wake-up has one timestamp."""


class NeedsValidation(Exception):
    """The records of a batch must be looked at one by one, in a helper process.

    Everything else about the batch has been checked.
    """

    def __init__(self, validation: Validation) -> None:
        super().__init__(validation)
        self.validation = validation


class InlineBudget:
    """Bounds the validation on the loop; all rules of a broker share one."""

    __slots__ = ("_left", "_now_ms")

    def __init__(self) -> None:
        self._now_ms = -1
        self._left = 0

    def take(self, size: int, now_ms: int) -> bool:
        """Return whether a batch of this size may be validated at once, and count it."""
        if now_ms != self._now_ms:
            self._now_ms, self._left = now_ms, INLINE_BYTES_PER_MS
        if size > min(self._left, MAX_INLINE_BYTES):
            return False
        self._left -= size
        return True


class AppendRules:
    """The settings of a topic that concern appends, and the time bounds computed from them.

    Shared by all logs of a broker that have the same settings.
    """

    __slots__ = (
        "_budget",
        "after_max_ms",
        "append_time",
        "before_max_ms",
        "codec",
        "is_compacted",
        "keyed_attributes",
        "level",
        "log_append_time",
        "max_batch_bytes",
        "max_message_bytes",
        "newest_timestamp",
        "now_ms",
        "oldest_timestamp",
        "plain_attributes",
        "segment_bytes",
    )

    def __init__(self, config: LogConfig, budget: InlineBudget) -> None:
        self._budget = budget
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
        stored = self._stored_unchanged()
        self.keyed_attributes = stored | {CONTROL_MASK}
        """Attributes of batches that are stored unchanged, if their records have keys.

        Control batches among them: only the broker itself has these.
        """
        self.plain_attributes = _NONE if self.is_compacted else stored
        """The same for batches whose keys nobody has checked."""
        self.set_time(0)

    def set_time(self, now_ms: int) -> None:
        """Compute the bounds of timestamps, once a millisecond."""
        self.now_ms = now_ms
        self.oldest_timestamp = now_ms - self.before_max_ms
        self.newest_timestamp = now_ms + self.after_max_ms
        self.append_time = now_ms if self.log_append_time else NO_TIMESTAMP
        """The timestamp that batches get now, -1 if they keep their own."""

    def _stored_unchanged(self) -> frozenset[int]:
        if self.log_append_time:
            return _NONE
        return frozenset(range(_MAX_CODEC + 1) if self.codec is None else (self.codec,))

    def prepare(
        self,
        buffer: bytearray,
        view: memoryview,
        start: int,
        end: int,
        now_ms: int,
        has_keys: bool,
    ) -> tuple[bytearray, memoryview, int, int]:
        """Check the batch at [start, end) and change it as the topic asks.

        Returns where the batch is now: in place, or in a buffer of its own. Raises ApiError, or
        NeedsValidation for the caller to deal with.
        """
        batch = self._check_header(buffer, view, start, end, now_ms)
        validation = self._validation(batch, has_keys)
        if validation is not None:
            if batch.compression or not self._budget.take(end - start, now_ms):
                raise NeedsValidation(validation)
            changed = validation.run(buffer, start, end)
            if changed is not None:
                buffer, view, start, end = changed, memoryview(changed), 0, len(changed)
                self._check_size(end)
        if self.log_append_time:
            _stamp(buffer, start, end, now_ms)
        elif batch.attributes & TIMESTAMP_TYPE_MASK:  # the topic decides the type
            buffer[start + ATTRIBUTES_OFFSET + 1] &= ~TIMESTAMP_TYPE_MASK & 0xFF
            seal(buffer, start, end)
        return buffer, view, start, end

    def check(
        self,
        buffer: bytearray,
        view: memoryview,
        start: int,
        end: int,
        now_ms: int,
        has_keys: bool,
    ) -> None:
        """Check the batch at [start, end) before its turn to be appended has come.

        Raises ApiError, or NeedsValidation if its records must be looked at.
        """
        batch = self._check_header(buffer, view, start, end, now_ms)
        validation = self._validation(batch, has_keys)
        if validation is not None:
            raise NeedsValidation(validation)

    def _check_header(
        self, buffer: bytearray, view: memoryview, start: int, end: int, now_ms: int
    ) -> Batch:
        """Check everything but the records; raises ApiError."""
        batch = _one_batch(buffer, start, end)
        self._check_size(end - start)
        if crc_of(view, start, end) != batch.crc:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, "The CRC of the batch does not match")
        _check_client_batch(batch)
        self._check_timestamps(batch, now_ms)
        return batch

    def _validation(self, batch: Batch, has_keys: bool) -> Validation | None:
        """Return what must be done with the records of a batch, None if nothing."""
        checks_keys = self.is_compacted and not has_keys
        codec = None if self.codec == batch.compression else self.codec
        if codec is None and not checks_keys:
            return None
        from ottla.records.validation import Validation

        return Validation(checks_keys, codec, self.level, self.max_message_bytes)

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


def _one_batch(buffer: bytearray, start: int, end: int) -> Batch:
    """Return the header of the one v2 batch that fills [start, end)."""
    if end - start <= MAGIC_OFFSET:
        raise ApiError(ErrorCode.INVALID_RECORD, "There is no batch in the request")
    magic = buffer[start + MAGIC_OFFSET]
    if magic in (0, 1):
        raise ApiError(
            ErrorCode.INVALID_RECORD,
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
