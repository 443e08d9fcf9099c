"""Check the records of a client's batch, as Kafka does before it appends them.

A batch passes if every consumer can read it: it has exactly the records that its header counts,
each is as long as it says, and the offset deltas are 0, 1, 2 and so on. Keys and timestamps are
checked on the way. Nothing is decoded that need not be.

A broker does this for every batch, so it must cost little. There are three speeds:
- Many records of the same layout, one after the other, are checked at once
  (`record_layout`): 8 ns a record. Values of one size have the same layout.
- Other records of the usual form are checked by `_usual_records`: 0.6 us a record.
- The rest (headers, long keys, unusual numbers) and all that is wrong are read as a whole: 5 us.

`steps` bounds the work: one step is about the time of one record in `_usual_records`.
"""

from __future__ import annotations

from typing import Final, NoReturn

from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_TIMESTAMP
from ottla.records.batch import CorruptBatch
from ottla.records.record_layout import (
    SHORTEST_RUN,
    Shape,
    add_keyless,
    are_keyless,
    keyless_prefixes,
    layout_of,
    run_length,
    usual_layout,
)
from ottla.records.varint import read_int, read_length, read_long

MAX_REPORTED: Final = 1000
"""How many bad records of a batch the client is told: the answer is made on the loop."""
UNLIMITED: Final = 1 << 62
MIN_TIMESTAMP: Final = -(1 << 63)
MAX_TIMESTAMP: Final = (1 << 63) - 1

_STEPS_OF_RUN: Final = 12
_PROBE: Final = 64
"""If there are more records than steps, a run must begin after this many at the latest."""
_MIN_GAP: Final = 2
_MAX_GAP: Final = 1024
_SAFE_BYTES: Final = 3
_SAFE_MS: Final = 1 << 20
"""Timestamp deltas of three bytes are smaller than this."""
_STEPS_OF_ANY: Final = 8
_STEPS_OF_HEADER: Final = 2
_MIN_RECORD_BYTES: Final = 7  # seven numbers of one byte each


class OutOfSteps(Exception):
    """The check takes more steps than allowed. Nothing was wrong so far."""


class RecordRules:
    """What a topic demands of each record."""

    __slots__ = ("needs_keys", "newest", "oldest")

    def __init__(
        self, needs_keys: bool = False, oldest: int = MIN_TIMESTAMP, newest: int = MAX_TIMESTAMP
    ) -> None:
        self.needs_keys = needs_keys
        self.oldest = oldest
        """Timestamps must not be smaller, unless there is none (-1)."""
        self.newest = newest


def check_records(
    data: bytes | bytearray,
    start: int,
    end: int,
    count: int,
    base_timestamp: int,
    rules: RecordRules,
    steps: int = UNLIMITED,
) -> int:
    """Check that [start, end) has `count` records; return how many steps are left.

    Raise ApiError, which names the bad records, or OutOfSteps.
    """
    needs_keys, oldest, newest = rules.needs_keys, rules.oldest, rules.newest
    if oldest + _SAFE_MS <= base_timestamp <= newest - _SAFE_MS:
        safe_bytes = _SAFE_BYTES
        if count > 1 and not needs_keys and are_keyless(data, start, end, count):
            return steps - 1
    else:
        slack = min(base_timestamp - oldest, newest - base_timestamp)
        safe_bytes = min(slack.bit_length() // 7, 9) if slack > 0 else 0
    null = -1 if needs_keys else 1
    tried = steps if count <= steps else min(steps, _PROBE)
    position, index, shape = _usual_records(data, start, end, 0, count, safe_bytes, null, tried)
    if index == count and position == end:
        if count == 1 and end - start not in keyless_prefixes:
            add_keyless(end - start)  # for the next batch like this
        return steps - index
    if count * _MIN_RECORD_BYTES > end - start:
        problem = f"{end - start} bytes cannot hold {count} records"
        raise ApiError(ErrorCode.INVALID_RECORD, problem)
    check = _Check(data, end, count, base_timestamp, rules, safe_bytes, steps - index)
    check.run(position, index, shape)
    return check.steps


def _usual_records(
    data: bytes | bytearray,
    position: int,
    end: int,
    index: int,
    count: int,
    safe_bytes: int,
    null: int,
    steps: int,
) -> tuple[int, int, Shape | None]:
    """Check records up to one that needs more, or that is as large as the one before.

    Return where the next one is, its index, and in the second case the shape. Usual records have
    numbers of one to three bytes, keys below 64 bytes and no headers. `safe_bytes`: timestamp
    deltas of this many bytes are not decoded. `null`: the first byte of a null key.
    """
    try_runs_upto = count - SHORTEST_RUN
    last = min(count, index + steps)
    previous = 0
    try:
        while index < last:
            length = data[position]
            at = position + 2
            if length < 0x80:
                stop = position + 1 + (length >> 1)
            elif (high := data[position + 1]) < 0x80:
                at += 1
                stop = at - 1 + (high << 6) + ((length & 0x7F) >> 1)
            elif (third := data[position + 2]) < 0x80:
                at += 2
                stop = at - 1 + (third << 13) + ((high & 0x7F) << 6) + ((length & 0x7F) >> 1)
            else:
                break
            if data[at] < 0x80:
                width = 1
            elif data[at + 1] < 0x80:
                width = 2
            elif data[at + 2] < 0x80:
                width = 3
            else:
                break
            at += width
            if index < 64:
                if data[at] != index + index:
                    break
                at += 1
            elif index < 8192:
                if data[at] != (index + index & 0x7F | 0x80) or data[at + 1] != index >> 6:
                    break
                at += 2
            elif (
                data[at] != (index + index & 0x7F | 0x80)
                or data[at + 1] != (index >> 6 & 0x7F | 0x80)
                or data[at + 2] != index >> 13
            ):
                break
            else:
                at += 3
            key = data[at]
            if key & 1:
                if key != null:
                    break
                at += 1
            elif key < 0x80:
                at += 1 + (key >> 1)
            else:
                break
            value = data[at]
            if value < 0x80:
                at += 1 + (value >> 1)
                if value & 1 and value != 1:
                    break
            elif value & 1:
                break
            elif (high := data[at + 1]) < 0x80:
                at += 2 + (high << 6) + ((value & 0x7F) >> 1)
            elif (third := data[at + 2]) < 0x80:
                at += 3 + (third << 13) + ((high & 0x7F) << 6) + ((value & 0x7F) >> 1)
            else:
                break
            # A record ends with its count of headers.
            if at + 1 != stop or data[at] or stop > end or length & 1 or width > safe_bytes:
                break
            size = stop - position
            position = stop
            index += 1
            if size == previous and index < try_runs_upto:
                return position, index, (size, width, key)
            previous = size
    except IndexError:
        pass  # the record passes the end of the buffer
    return position, index, None


class _Check:
    """The check of one batch: what is left to do, and what it has found."""

    def __init__(
        self,
        data: bytes | bytearray,
        end: int,
        count: int,
        base_timestamp: int,
        rules: RecordRules,
        safe_bytes: int,
        steps: int,
    ) -> None:
        self._data = data
        self._end = end
        self._count = count
        self._base_timestamp = base_timestamp
        self._rules = rules
        self._safe_bytes = safe_bytes
        self.steps = steps
        self._position = 0
        self._index = 0
        self._size = 0
        """The size of the last record."""
        self._run_end = 0
        """The record after the last run that was found."""
        self._next_run = 0
        self._gap = _MIN_GAP
        """How many records after a run that was none the next one is looked for."""
        self._errors: dict[int, str] = {}
        self._has_bad_timestamp = False

    def run(self, position: int, index: int, shape: Shape | None) -> None:
        """Check all records from this one on; `shape` is that of the two before, if it is one."""
        self._position, self._index = position, index
        data, end, count, safe_bytes = self._data, self._end, self._count, self._safe_bytes
        null = -1 if self._rules.needs_keys else 1
        while self._index < count and len(self._errors) < MAX_REPORTED:
            size = self._check_any() if shape is None else shape[0]
            if size and self._index >= self._next_run:
                self._check_run(size, shape)
            index, steps = self._index, self.steps
            if count - index > steps:  # too many, unless a run comes soon
                if index - self._run_end >= _PROBE:
                    raise OutOfSteps
                steps = min(steps, _PROBE)
            self._position, self._index, shape = _usual_records(
                data, self._position, end, index, count, safe_bytes, null, steps
            )
            self._take(self._index - index)
        if self._errors:
            self._refuse()
        if self._position != end:
            self._index = count - 1
            self._fail(f"{end - self._position} bytes follow it, and it is the last one")

    def _check_run(self, size: int, shape: Shape | None) -> None:
        """Check the records that have the same layout as the last one, which takes `size` bytes."""
        self._take(_STEPS_OF_RUN)
        data, position, left = self._data, self._position, self._count - self._index
        if shape is None:
            layout = layout_of(data, position - size)
        else:
            layout = usual_layout(data, position - size, self._index - 1, shape)
        found = 0
        if layout is not None and layout.offset - layout.timestamp <= self._safe_bytes:
            found = run_length(data, position, self._end, layout, self._index, left)
        self._index += found
        self._position += found * size
        if found:
            self._run_end, self._gap = self._index, _MIN_GAP
        else:
            self._gap = min(2 * self._gap, _MAX_GAP)
        self._next_run = self._index + self._gap

    def _check_any(self) -> int:
        """Check one record of any form; return its size if the one before was as large."""
        self._take(_STEPS_OF_ANY)
        try:
            stop = self._read(self._position)
        except IndexError:
            self._fail("it passes the end of the batch")
        except CorruptBatch as error:
            self._fail(error.reason)
        size, previous = stop - self._position, self._size
        self._position, self._size = stop, size
        self._index += 1
        is_run = size == previous and self._count - self._index >= SHORTEST_RUN
        return size if is_run and not self._errors else 0

    def _read(self, position: int) -> int:
        """Check the record at a position and return where it ends."""
        data, end = self._data, self._end
        size, at = read_int(data, position)
        stop = at + size
        if size < 0 or stop > end:
            raise CorruptBatch(0, f"its length is {size}, but {end - at} bytes are left")
        timestamp_delta, at = read_long(data, at + 1)
        offset_delta, at = read_int(data, at)
        if offset_delta != self._index:
            raise CorruptBatch(0, f"its offset delta is {offset_delta}")
        key_size, at = read_length(data, at, stop)
        value_size, at = read_length(data, at + max(key_size, 0), stop)
        headers, at = read_int(data, at + max(value_size, 0))
        if not 0 <= headers <= stop - at:
            raise CorruptBatch(0, f"it has {headers} headers in {stop - at} bytes")
        self._take(_STEPS_OF_HEADER * headers)
        for _ in range(headers):
            name_size, at = read_length(data, at, stop)
            if name_size < 0:
                raise CorruptBatch(0, "a header has no name")
            value_size, at = read_length(data, at + name_size, stop)
            at += max(value_size, 0)
        if at != stop:
            raise CorruptBatch(0, f"its length is {size}, but its fields take {size + at - stop}")
        self._check_rules(key_size, self._base_timestamp + timestamp_delta)
        return stop

    def _check_rules(self, key_size: int, timestamp: int) -> None:
        oldest, newest = self._rules.oldest, self._rules.newest
        if self._rules.needs_keys and key_size < 0:
            self._errors[self._index] = "A record of a compacted topic must have a key"
        elif timestamp != NO_TIMESTAMP and not oldest <= timestamp <= newest:
            problem = f"Timestamp {timestamp} is not within [{oldest}, {newest}]"
            self._errors[self._index] = problem
            self._has_bad_timestamp = True

    def _take(self, steps: int) -> None:
        self.steps -= steps
        if self.steps <= 0:
            raise OutOfSteps

    def _fail(self, reason: str) -> NoReturn:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"Record {self._index} of the batch cannot be read: {reason}",
            {self._index: f"The record cannot be read: {reason}"},
        ) from None

    def _refuse(self) -> NoReturn:
        if self._has_bad_timestamp:
            raise ApiError(
                ErrorCode.INVALID_TIMESTAMP,
                "Timestamps of records are out of range, see message.timestamp.before.max.ms"
                " and message.timestamp.after.max.ms",
                self._errors,
            )
        raise ApiError(
            ErrorCode.INVALID_RECORD, "Records of a compacted topic must have a key", self._errors
        )
