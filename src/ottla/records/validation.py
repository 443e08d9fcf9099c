"""The work on a client's batch that looks at every record: null keys, and another codec.

`validate` is a task for a helper process: bytes in, bytes out, and it knows no broker. A
request is a fixed head and the batch, as the client sent it. A result is the batch in its new
codec, or nothing if it stays as it is, or the error that the client gets.

Compressed records may take VALIDATED_LIMIT bytes, no more: that is the most that a client can
send in one request by default (socket.request.max.bytes). The answer to more is
MESSAGE_TOO_LARGE, upon which Java producers split their batch and try again.
"""

from __future__ import annotations

from struct import Struct, pack, unpack_from
from typing import Final, NamedTuple

from ottla.model.errors import ApiError, ErrorCode
from ottla.ports import Buffer
from ottla.records.batch import HEADER_SIZE, CorruptBatch, TooMuchData
from ottla.records.compression import NONE, recompress
from ottla.records.record import null_keys

TASK: Final = "ottla.records.validation:validate"
VALIDATED_LIMIT: Final = 100 * 1024 * 1024
MAX_REPORTED: Final = 1000
"""How many bad records of a batch the client is told: the answer is made on the loop."""

_NO_LEVEL: Final = -(2**31)
_KEEP_CODEC: Final = -1
_HEAD: Final = Struct(">?biq")  # check keys, codec, level, most bytes of the result
_REFUSAL: Final = Struct(">hi")  # error code, count of bad records
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

    def run(self, batch: Buffer, start: int, end: int) -> bytearray | None:
        """Return the batch at [start, end) as it is stored, None if unchanged; raises ApiError."""
        limit = VALIDATED_LIMIT
        if self.codec == NONE:
            limit = min(limit, max(self.max_bytes - HEADER_SIZE, 0))
        try:
            if self.checks_keys:
                _refuse_null_keys(batch, start, end)
            if self.codec is None:
                return None
            return recompress(batch, start, end, self.codec, self.level, limit)
        except TooMuchData as error:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"The {error.reason}") from None
        except CorruptBatch as error:
            problem = f"Cannot read the records: {error}"
            raise ApiError(ErrorCode.INVALID_RECORD, problem) from None

    def request(self, batch: memoryview) -> bytearray:
        """Return the task's input, with a copy of the batch."""
        codec = _KEEP_CODEC if self.codec is None else self.codec
        level = _NO_LEVEL if self.level is None else self.level
        request = bytearray(_HEAD.pack(self.checks_keys, codec, level, self.max_bytes))
        request += batch
        return request


def validate(request: Buffer) -> bytes:
    """Do what a request asks for; this is the task."""
    checks_keys, codec, level, max_bytes = _HEAD.unpack_from(request)
    validation = Validation(
        checks_keys,
        None if codec == _KEEP_CODEC else codec,
        None if level == _NO_LEVEL else level,
        max_bytes,
    )
    try:
        changed = validation.run(request, BATCH_START, len(request))
    except ApiError as refusal:
        bad = refusal.bad_records
        head = _REFUSAL.pack(refusal.code, len(bad)) + pack(f">{len(bad)}i", *bad)
        return _REFUSED + head + (refusal.message or "").encode()
    return _UNCHANGED if changed is None else _CHANGED + changed


def result_of(result: bytes) -> bytearray | None:
    """Return the changed batch of a task's result, None if unchanged; raises ApiError."""
    kind = result[:1]
    if kind == _UNCHANGED:
        return None
    if kind == _CHANGED:
        return bytearray(memoryview(result)[1:])
    assert kind == _REFUSED, kind
    code, count = _REFUSAL.unpack_from(result, 1)
    start = 1 + _REFUSAL.size
    bad = unpack_from(f">{count}i", result, start)
    raise ApiError(ErrorCode(code), result[start + 4 * count :].decode(), bad)


def _refuse_null_keys(batch: Buffer, start: int, end: int) -> None:
    found = null_keys(batch, start, end, VALIDATED_LIMIT, MAX_REPORTED)
    if found:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            "Records of a compacted topic must have a key",
            found,
        )
