"""The error text for each status with which `decode_loops` reports damaged bytes."""

from __future__ import annotations

from typing import Final

from pyspark_ottla.decode import decode_loops as loops

DAMAGE: Final = {
    loops.BAD_LENGTH: "a batch is shorter than its header",
    loops.BAD_MAGIC: "its magic is not 0, 1 or 2",
    loops.BAD_COUNT: "its record count is negative or more than its bytes can hold",
    loops.BAD_LAST_OFFSET: "its offsets are out of range",
    loops.BAD_VARINT: "a number in a record is cut off or has more than 64 bits",
    loops.BAD_RECORD_LENGTH: "a record ends after the end of the batch",
    loops.BAD_OFFSET: "the offsets of its records do not increase, or pass its last offset",
    loops.BAD_FIELD: "a key or value ends after the end of its record",
    loops.BAD_HEADERS: "the headers of a record end after the end of the record",
    loops.BAD_RECORD_END: "a record is shorter or longer than its length field says",
    loops.BAD_BATCH_END: "bytes follow its last record",
    loops.BAD_TIMESTAMP: (
        "a timestamp is out of the range of Spark's type (to read the other columns, leave out"
        " timestamp with the option columns)"
    ),
}
