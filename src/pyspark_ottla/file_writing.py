"""How the workers of a load write files: told by the driver, in one option of `files_source`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple

from pyspark_ottla.option_values import OptionError

OPTION: Final = "fileWriting"


class Codec(NamedTuple):
    """A codec of Parquet: pyarrow's name and level for what Spark's writer does, file suffix."""

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
"""By the value of spark.sql.parquet.compression.codec; others are left to Spark's writer."""


@dataclass(frozen=True)
class FileWriting:
    """Files go to `directory`, which every worker sees; `note` tells what a file takes."""

    directory: str
    note: str
    codec: str
    target_file_size: int

    def file_name(self, unique: str) -> str:
        """A name as Spark's writer gives it."""
        return f"part-{unique}{CODECS[self.codec].suffix}.parquet"

    def rows_a_file(self) -> int | None:
        """How many rows make a file of the wanted size, as far as the driver has noted it."""
        try:
            text = Path(self.note).read_text()
        except FileNotFoundError:
            return None
        return int(text) if text.strip().isdigit() else None

    def note_rows_a_file(self, rows: int) -> None:
        """Tell those who plan tasks: the old number or the new one, never half of it."""
        fresh = Path(f"{self.note}.new")
        fresh.parent.mkdir(exist_ok=True)
        fresh.write_text(f"{rows}\n")
        os.replace(fresh, self.note)

    def option(self) -> dict[str, str]:
        """The option that `file_writing` reads."""
        return {OPTION: json.dumps(asdict(self))}


def file_writing(options: Mapping[str, str]) -> FileWriting:
    """What the option says; OptionError when a load did not set it."""
    try:
        writing = FileWriting(**json.loads(options[OPTION]))
    except (KeyError, ValueError, TypeError):
        raise OptionError(
            f"this source is for loads, which set its option {OPTION}: read with format ottla"
        ) from None
    return writing
