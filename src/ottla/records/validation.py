"""The work on a client's batch that looks at every record.

It checks the structure of the records, their timestamps and keys, and may store them in another
codec. `validate` is a task for a helper process: bytes in, bytes out, and it knows no broker. A
request is a fixed head and the batch, as the client sent it. A result is the batch in its new
codec, or nothing if it stays as it is, or the error that the client gets.

Compressed records may take VALIDATED_LIMIT bytes, no more: that is the most that a client can
send in one request by default (socket.request.max.bytes). The answer to more is
MESSAGE_TOO_LARGE, upon which Java producers split their batch and try again.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_TIMESTAMP
from ottla.ports import Buffer
from ottla.records.batch import HEADER_SIZE, Batch, CorruptBatch, TooMuchData, parse_header
from ottla.records.compression import NONE, decompress, recompress, replace_records
from ottla.records.structure import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    UNLIMITED,
    OutOfSteps,
    RecordRules,
    check_records,
)

TASK: Final = "ottla.records.validation:validate"
VALIDATED_LIMIT: Final = 100 * 1024 * 1024

_NO_LEVEL: Final = -(2**31)
_KEEP_CODEC: Final = -1
_HEAD: Final = Struct(">?biqqq?")  # the fields of Validation
_REFUSAL: Final = Struct(">hi")  # error code, count of bad records
_BAD_RECORD: Final = Struct(">iH")  # index, length of the message
_UNCHANGED: Final = b"U"
_CHANGED: Final = b"C"
_REFUSED: Final = b"R"

BATCH_START: Final = _HEAD.size
"""Where the batch begins in a request."""


class Validation(NamedTuple):
    """What is to be done with the records of one batch."""

    checks_keys: bool
    codec: int | None
    """The codec to store the records in; None keeps the batch's."""
    level: int | None
    max_bytes: int
    """The largest batch that the topic takes."""
    oldest: int = MIN_TIMESTAMP
    newest: int = MAX_TIMESTAMP
    """The bounds of timestamps."""
    checks_records: bool = True
    """False if the records were checked before, and only the codec is to be changed."""

    @property
    def is_short(self) -> bool:
        """True if the records need not be decompressed, or for their structure only."""
        return self.codec is None and not self.checks_keys

    def run(
        self, buffer: Buffer, start: int, limit: int | None = None, steps: int = UNLIMITED
    ) -> tuple[bytearray | None, int]:
        """Return the batch at `start` as it is stored, None if unchanged, and the steps left.

        Raise ApiError. Raise OutOfSteps if the records take more than `limit` bytes, or the
        check more than `steps`.
        """
        batch = parse_header(buffer, start)
        end = start + batch.size  # bytes that follow a batch do not count
        most = VALIDATED_LIMIT if limit is None else limit
        if self.codec == NONE:
            most = min(most, max(self.max_bytes - HEADER_SIZE, 0))
        try:
            if not self.checks_records and self.codec is not None:
                return recompress(buffer, start, end, self.codec, self.level, most), steps
            records, first, last = _records(buffer, start, end, batch, most)
        except TooMuchData as error:
            if most == limit:
                raise OutOfSteps from None
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"The {error.reason}") from None
        except CorruptBatch as damage:
            problem = f"Cannot read the records: {damage}"
            raise ApiError(ErrorCode.INVALID_RECORD, problem) from None
        rules = RecordRules(self.checks_keys, self.oldest, self.newest)
        steps = check_records(
            records, first, last, batch.record_count, batch.base_timestamp, rules, steps
        )
        self._check_header(batch)
        if self.codec is None:
            return None, steps
        with memoryview(records) as view:
            return replace_records(buffer, start, view[first:last], self.codec, self.level), steps

    def _check_header(self, batch: Batch) -> None:
        """Refuse timestamps in the header that no record has, and that are out of range."""
        for timestamp in (batch.base_timestamp, batch.max_timestamp):
            if timestamp != NO_TIMESTAMP and not self.oldest <= timestamp <= self.newest:
                raise ApiError(
                    ErrorCode.INVALID_TIMESTAMP,
                    f"Timestamp {timestamp} of the batch is not within"
                    f" [{self.oldest}, {self.newest}], see message.timestamp.before.max.ms and"
                    " message.timestamp.after.max.ms",
                )

    def request(self, batch: memoryview) -> bytearray:
        """Return the task's input, with a copy of the batch."""
        codec = _KEEP_CODEC if self.codec is None else self.codec
        level = _NO_LEVEL if self.level is None else self.level
        head = self._replace(codec=codec, level=level)
        request = bytearray(_HEAD.pack(*head))
        request += batch
        return request


def validate(request: Buffer) -> bytes:
    """Do what a request asks for; this is the task."""
    head = Validation(*_HEAD.unpack_from(request))
    validation = head._replace(
        codec=None if head.codec == _KEEP_CODEC else head.codec,
        level=None if head.level == _NO_LEVEL else head.level,
    )
    try:
        changed, _ = validation.run(request, BATCH_START)
    except ApiError as refusal:
        return _REFUSED + _encode_refusal(refusal)
    return _UNCHANGED if changed is None else _CHANGED + changed


def result_of(result: bytes) -> bytearray | None:
    """Return the changed batch of a task's result, None if unchanged; raise ApiError."""
    kind = result[:1]
    if kind == _UNCHANGED:
        return None
    if kind == _CHANGED:
        return bytearray(memoryview(result)[1:])
    assert kind == _REFUSED, kind
    raise _decode_refusal(result, 1)


def _records(
    buffer: Buffer, start: int, end: int, batch: Batch, limit: int
) -> tuple[bytes | bytearray, int, int]:
    """Return a buffer with the records, decompressed, and where they begin and end in it."""
    if not batch.compression:
        if end - start - HEADER_SIZE > limit:
            raise TooMuchData(0, f"records take more than {limit} bytes")
        data = buffer if isinstance(buffer, (bytes, bytearray)) else bytes(buffer)
        return data, start + HEADER_SIZE, end
    with memoryview(buffer) as view:
        found = decompress(batch.compression, view[start + HEADER_SIZE : end], limit)
    data = found if isinstance(found, (bytes, bytearray)) else bytes(found)
    return data, 0, len(data)


def _encode_refusal(refusal: ApiError) -> bytes:
    parts = [_REFUSAL.pack(refusal.code, len(refusal.bad_records))]
    for index, message in refusal.bad_records.items():
        text = message.encode()
        parts += (_BAD_RECORD.pack(index, len(text)), text)
    parts.append((refusal.message or "").encode())
    return b"".join(parts)


def _decode_refusal(data: bytes, at: int) -> ApiError:
    code, count = _REFUSAL.unpack_from(data, at)
    at += _REFUSAL.size
    bad = {}
    for _ in range(count):
        index, length = _BAD_RECORD.unpack_from(data, at)
        at += _BAD_RECORD.size
        bad[index] = data[at : at + length].decode()
        at += length
    return ApiError(ErrorCode(code), data[at:].decode(), bad)
