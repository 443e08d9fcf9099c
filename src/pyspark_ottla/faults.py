"""What the numbers mean with which the loops say that bytes are not what they should be."""

from __future__ import annotations

from typing import Final

from pyspark_ottla import loops

FAULTS: Final = {
    loops.BAD_LENGTH: "a batch is shorter than its header",
    loops.BAD_MAGIC: "its magic is none of 0, 1 and 2",
    loops.BAD_COUNT: "it counts more records than its bytes can hold",
    loops.BAD_LAST_OFFSET: "its offsets are out of range",
    loops.BAD_VARINT: "a number in a record is cut off or takes more than 64 bits",
    loops.BAD_RECORD_LENGTH: "a record passes the end of the batch",
    loops.BAD_OFFSET: "the offsets of its records do not rise within the batch",
    loops.BAD_FIELD: "a key or value passes the end of its record",
    loops.BAD_HEADERS: "the headers of a record pass its end",
    loops.BAD_RECORD_END: "a record is shorter or longer than its length says",
    loops.BAD_BATCH_END: "bytes follow its last record",
    loops.BAD_TIMESTAMP: (
        "a timestamp is further away than Spark can express (read without the column timestamp:"
        " the option columns)"
    ),
}
