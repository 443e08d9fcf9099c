"""The rules for a client's batch, and the changes that a topic's settings ask for.

`Log.append_as_leader` accepts the batches that need no change with one condition, which
includes a check of their records if they are not compressed (`ottla.records.structure`). For all
others `prepare` checks every rule in Kafka's order, so that the error names the right one.

Whatever looks at records takes time. It is done at once if it is short: a bounded number of
records in a batch and in a wake-up, and small batches that are compressed. For all others
`NeedsValidation` is raised: the caller lets a helper process do it (`ottla.records.validation`),
and appends what comes back.

A topic's largest timestamp is the one in the header. Kafka computes it from the records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.log.only_batch import only_batch
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_TIMESTAMP
from ottla.records.batch import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CONTROL_MASK,
    MAX_TIMESTAMP_OFFSET,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    Batch,
    crc_of,
    seal,
)
from ottla.records.structure import (
    MAX_REPORTED,
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    OutOfSteps,
    RecordRules,
    check_records,
)

if TYPE_CHECKING:
    from ottla.config.topic import LogConfig
    from ottla.records.validation import Validation

CODEC_IDS: Final = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_MAX_CODEC: Final = 4
_NONE: Final[frozenset[int]] = frozenset()

UNCHECKED: Final = 0
"""Nobody has looked at the records of a batch."""
WELL_FORMED: Final = 1
"""The records are well-formed: a helper process has checked them."""
WITH_KEYS: Final = 2
"""The same, and all of them have keys, as compacted topics ask for."""

MAX_INLINE_BYTES: Final = 16 * 1024
"""Larger batches are recompressed, decompressed and searched for null keys in a helper process:
these take 0.5 ms, with zstd 22 1.5 ms."""
MAX_INLINE_DECOMPRESSED: Final = 64 * 1024
"""What records may take that are decompressed at once: 0.2 ms with gzip."""
INLINE_BYTES_PER_MS: Final = 64 * 1024
"""How much of that is done at once for each timestamp of appends: one wake-up has one timestamp."""
_MIN_TAKEN: Final = 2048  # a decoder of zstd takes 25 us to set up
MAX_INLINE_STEPS: Final = 4096
"""How many records of a batch are checked at once, if they differ in size: this takes 2.5 ms."""
INLINE_STEPS_PER_MS: Final = 8192
"""The same for each timestamp of appends."""


class AppendLater(Exception):
    """A batch cannot be appended now, and later ones must not overtake it."""


class NeedsRoll(AppendLater):
    """A batch needs a new segment, and this wake-up has no time left for that.

    The batch has been checked.
    """


class NeedsValidation(AppendLater):
    """The records of a batch must be looked at one by one, in a helper process.

    Everything else about the batch has been checked.
    """

    def __init__(self, validation: Validation) -> None:
        super().__init__(validation)
        self.validation = validation


class InlineBudget:
    """Bounds the validation on the loop; all rules of a broker share one."""

    __slots__ = ("_bytes", "_now_ms", "_steps")

    def __init__(self) -> None:
        self._now_ms = -1
        self._bytes = 0
        self._steps = 0

    def take(self, size: int, now_ms: int) -> bool:
        """Return whether a batch of this size may be validated at once, and count it."""
        self._set_time(now_ms)
        if size > min(self._bytes, MAX_INLINE_BYTES):
            return False
        self._bytes -= max(size, _MIN_TAKEN)
        return True

    def steps(self, now_ms: int) -> int:
        """Return how many steps the check of a batch may take now."""
        self._set_time(now_ms)
        return min(self._steps, MAX_INLINE_STEPS)

    def spend(self, steps: int) -> None:
        """Count the steps that a check has taken."""
        self._steps -= steps

    def _set_time(self, now_ms: int) -> None:
        if now_ms != self._now_ms:
            self._now_ms = now_ms
            self._bytes, self._steps = INLINE_BYTES_PER_MS, INLINE_STEPS_PER_MS


class AppendRules:
    """The settings of a topic that concern appends, and the time bounds computed from them.

    Shared by all logs of a broker that have the same settings.
    """

    __slots__ = (
        "_budget",
        "_record_rules",
        "accepted_attributes",
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
        stored |= {attributes | TRANSACTIONAL_MASK for attributes in stored}
        self.accepted_attributes = (
            _NONE if self.is_compacted else stored & {0, TRANSACTIONAL_MASK},
            _NONE if self.is_compacted else stored,
            stored | {CONTROL_MASK},
        )
        """Attributes of batches that are stored unchanged: UNCHECKED, WELL_FORMED, WITH_KEYS.

        Control batches are among the last: only the broker itself has these.
        """
        self.set_time(0)

    def set_time(self, now_ms: int) -> None:
        """Compute the bounds of timestamps, once a millisecond."""
        self.now_ms = now_ms
        self.oldest_timestamp = now_ms - self.before_max_ms
        self.newest_timestamp = now_ms + self.after_max_ms
        self.append_time = now_ms if self.log_append_time else NO_TIMESTAMP
        """The timestamp that batches get now, -1 if they keep their own."""
        self._record_rules: RecordRules | None = None

    def _stored_unchanged(self) -> frozenset[int]:
        if self.log_append_time:
            return _NONE
        return frozenset(range(_MAX_CODEC + 1) if self.codec is None else (self.codec,))

    def check_plain(
        self, buffer: bytearray, start: int, end: int, count: int, base_timestamp: int
    ) -> bool:
        """Check the records of a batch that is not compressed; `start` is where they begin.

        Return True. Raise ApiError, or NeedsValidation if this would take long.
        """
        budget = self._budget
        steps = budget.steps(self.now_ms)
        rules = self._record_rules
        if rules is None:
            rules = self._record_rules = RecordRules(False, *self._timestamp_bounds(self.now_ms))
        try:
            left = check_records(buffer, start, end, count, base_timestamp, rules, steps)
        except OutOfSteps:
            budget.spend(steps)
            raise NeedsValidation(self._validation(None, False, self.now_ms)) from None
        budget.spend(steps - left)
        return True

    def prepare(
        self,
        buffer: bytearray,
        view: memoryview,
        start: int,
        end: int,
        now_ms: int,
        checked: int,
    ) -> tuple[bytearray, memoryview, int, int]:
        """Check the batch at [start, end) and change it as the topic asks.

        Return where the batch is now: in place, or in a buffer of its own. Raise ApiError, or
        NeedsValidation for the caller to deal with.
        """
        batch = self._check_header(buffer, view, start, end)
        end = batch.end
        validation = self._needed(batch, checked, now_ms)
        if validation is not None:
            changed = self._validate(validation, batch, buffer, start, end, now_ms)
            if changed is not None:
                buffer, view, start, end = changed, memoryview(changed), 0, len(changed)
                self._check_size(end)
        if self.log_append_time:
            _stamp(buffer, start, end, now_ms)
        elif batch.attributes & TIMESTAMP_TYPE_MASK:  # the topic decides the type
            buffer[start + ATTRIBUTES_OFFSET + 1] &= ~TIMESTAMP_TYPE_MASK & 0xFF
            seal(buffer, start, end)
        return buffer, view, start, end

    def stamp(self, batch: bytearray, now_ms: int) -> None:
        """Give a batch of the broker's own the timestamp that the topic asks for."""
        if self.log_append_time:
            _stamp(batch, 0, len(batch), now_ms)

    def take_back_stamp(self, batch: bytearray, start: int, end: int) -> None:
        """Take the timestamp of `prepare` back, so that `prepare` accepts the batch again."""
        if self.log_append_time:
            batch[start + ATTRIBUTES_OFFSET + 1] &= ~TIMESTAMP_TYPE_MASK & 0xFF
            seal(batch, start, end)

    def check(
        self,
        buffer: bytearray,
        view: memoryview,
        start: int,
        end: int,
        now_ms: int,
        checked: int,
    ) -> int:
        """Check the batch at [start, end) before its turn to be appended has come.

        Return what is known about its records then. Raise ApiError, or NeedsValidation.
        """
        batch = self._check_header(buffer, view, start, end)
        validation = self._needed(batch, checked, now_ms)
        if validation is None:
            return checked
        if not validation.is_short:
            raise NeedsValidation(validation)
        self._validate(validation, batch, buffer, start, batch.end, now_ms)
        return WELL_FORMED

    def _check_header(self, buffer: bytearray, view: memoryview, start: int, end: int) -> Batch:
        """Check everything but the records of the batch in [start, end); raise ApiError."""
        batch = only_batch(buffer, start, end)
        self._check_size(batch.size)
        if crc_of(view, start, batch.end) != batch.crc:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, "The CRC of the batch does not match")
        _check_client_batch(batch)
        self._check_timestamp_type(batch)
        return batch

    def _needed(self, batch: Batch, checked: int, now_ms: int) -> Validation | None:
        """Return what must be done with the records of a batch, None if nothing."""
        codec = None if self.codec == batch.compression else self.codec
        is_checked = checked >= (WITH_KEYS if self.is_compacted else WELL_FORMED)
        if is_checked and not self._has_good_timestamps(batch, now_ms):
            is_checked = False  # the client is told which records have them
        if is_checked and codec is None:
            return None
        return self._validation(codec, is_checked, now_ms)

    def _validation(self, codec: int | None, is_checked: bool, now_ms: int) -> Validation:
        from ottla.records.validation import Validation

        return Validation(
            self.is_compacted and not is_checked, codec, self.level, self.max_message_bytes,
            *self._timestamp_bounds(now_ms), checks_records=not is_checked,
        )  # fmt: skip

    def _validate(
        self,
        validation: Validation,
        batch: Batch,
        buffer: bytearray,
        start: int,
        end: int,
        now_ms: int,
    ) -> bytearray | None:
        """Return the batch at [start, end) as it is stored, None if unchanged.

        Raise ApiError, or NeedsValidation if this takes too long.
        """
        budget = self._budget
        steps = budget.steps(now_ms)
        is_plain = not batch.compression
        if not (is_plain and validation.is_short) and (
            not (is_plain or validation.is_short) or not budget.take(end - start, now_ms)
        ):
            raise NeedsValidation(validation)
        limit = None if is_plain else MAX_INLINE_DECOMPRESSED
        try:
            changed, left = validation.run(buffer, start, limit, steps)
        except OutOfSteps:
            budget.spend(steps)
            raise NeedsValidation(validation) from None
        budget.spend(steps - left)
        return changed

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

    def _check_timestamp_type(self, batch: Batch) -> None:
        if self.log_append_time and batch.attributes & TIMESTAMP_TYPE_MASK:
            problem = "Producers may not set the LogAppendTime type"
            bad = dict.fromkeys(range(min(batch.record_count, MAX_REPORTED)), problem)
            raise ApiError(ErrorCode.INVALID_TIMESTAMP, problem, bad)

    def _has_good_timestamps(self, batch: Batch, now_ms: int) -> bool:
        """Return whether the timestamps in the header are in the bounds."""
        oldest, newest = self._timestamp_bounds(now_ms)
        return all(
            timestamp == NO_TIMESTAMP or oldest <= timestamp <= newest
            for timestamp in (batch.base_timestamp, batch.max_timestamp)
        )

    def _timestamp_bounds(self, now_ms: int) -> tuple[int, int]:
        if self.log_append_time:
            return MIN_TIMESTAMP, MAX_TIMESTAMP
        return now_ms - self.before_max_ms, min(now_ms + self.after_max_ms, MAX_TIMESTAMP)


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
    if batch.attributes & TRANSACTIONAL_MASK and batch.producer_id < 0:
        raise ApiError(ErrorCode.INVALID_RECORD, "A transactional batch needs a producer id")


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
