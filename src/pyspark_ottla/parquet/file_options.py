"""The option of `files_source` that tells the workers of a load how to write files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple

from pyspark_ottla.options.option_values import OptionError

OPTION: Final = "fileWriting"


class Codec(NamedTuple):
    """A Parquet codec: pyarrow's name and level, as Spark's writer uses it, and the file suffix."""

    arrow_name: str
    level: int | None
    suffix: str


CODECS: Final[Mapping[str, Codec]] = {
    "none": Codec("none", None, ""),
    "uncompressed": Codec("none", None, ""),
    "snappy": Codec("snappy", None, ".snappy"),
    "gzip": Codec("gzip", 6, ".gz"),
    "zstd": Codec("zstd", 3, ".zstd"),
    "lz4_raw": Codec("lz4", None, ".lz4raw"),
}
"""Codecs by value of spark.sql.parquet.compression.codec. Loads with another codec use Spark's
writer."""


@dataclass(frozen=True)
class FileWriting:
    """How to write files. `directory` must be visible to every worker.

    `note` is the path of a small file with the number of rows that make a file of the target
    size.
    """

    directory: str
    note: str
    codec: str
    target_file_size: int

    def file_name(self, unique: str) -> str:
        """Return a file name in the style of Spark's writer."""
        return f"part-{unique}{CODECS[self.codec].suffix}.parquet"

    def rows_a_file(self) -> int | None:
        """Return how many rows make a file of the target size, or None if it is not known yet."""
        try:
            text = Path(self.note).read_text()
        except FileNotFoundError:
            return None
        return int(text) if text.strip().isdigit() else None

    def note_rows_a_file(self, rows: int) -> None:
        """Store how many rows make a file, for the plan of the next batch. Replace atomically."""
        fresh = Path(f"{self.note}.new")
        fresh.parent.mkdir(exist_ok=True)
        fresh.write_text(f"{rows}\n")
        os.replace(fresh, self.note)

    def option(self) -> dict[str, str]:
        """Return the option that `file_writing` parses."""
        return {OPTION: json.dumps(asdict(self))}


def file_writing(options: Mapping[str, str]) -> FileWriting:
    """Parse the option. Raise OptionError if it is not set."""
    try:
        writing = FileWriting(**json.loads(options[OPTION]))
    except (KeyError, ValueError, TypeError):
        raise OptionError(
            f"this source is for loads, which set its option {OPTION}: to read topics, use"
            " format ottla"
        ) from None
    return writing
