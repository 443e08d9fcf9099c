"""The directory of a load: Spark's checkpoint, what the load is, and the schema it pinned.

    load.json    topic, format and shape of the table, fixed by the first run
    schema.json  the fields of the values, as a Spark schema; grows with --evolve
    topic-id     of the topic that was loaded last, as hex: one created again has another
    checkpoint/  Spark's own: where the load stopped
    lock         held while a load runs, where the directory is on this machine

It lies beside the data (TABLE/_ottla/TOPIC) unless --checkpoint says otherwise. Names with an
underscore are hidden from everything that reads tables.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from ottla_spark.loads.errors import LoadError, LoadUsageError
from ottla_spark.loads.state.checkpoint import Checkpoint
from ottla_spark.loads.state.storage import Storage, local_path

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

HIDDEN = "_ottla"
_TOPIC_ID = "topic-id"


def _open_lock(directory: str) -> TextIO:
    try:
        os.makedirs(directory, exist_ok=True)
        return open(os.path.join(directory, "lock"), "w")
    except OSError as error:
        raise LoadUsageError(f"cannot write to {directory}: {error.strerror}") from None


class Workplace:
    """The files of one load in `directory`."""

    def __init__(self, storage: Storage, directory: str) -> None:
        self.storage = storage
        self.directory = directory
        self.checkpoint = Checkpoint(storage, f"{directory}/checkpoint")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the load for this process; LoadError when another one runs."""
        local = local_path(self.directory)
        if local is None:
            yield
            return
        with _open_lock(local) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise LoadError(f"this load is running already: {local} is in use") from None
            yield

    def claim(self, identity: Mapping[str, str]) -> None:
        """Note what this load is at the first run; LoadUsageError if it is now another one."""
        path = f"{self.directory}/load.json"
        if not self.storage.exists(path):
            self.storage.write_text(path, json.dumps(dict(identity), indent=2) + "\n")
            return
        noted = json.loads(self.storage.read_text(path))
        for name, value in identity.items():
            if noted.get(name) != value:
                raise LoadUsageError(
                    f"{self.directory} belongs to a load with {name} {noted.get(name)!r}, not"
                    f" {value!r}: give what it was started with, or another table"
                )

    def topic_id(self) -> str | None:
        """The id that was noted last, if one was."""
        path = f"{self.directory}/{_TOPIC_ID}"
        return self.storage.read_text(path).strip() if self.storage.exists(path) else None

    def note_topic_id(self, topic_id: str) -> None:
        """What the checkpoint knows is about the topic with this id."""
        self.storage.write_text(f"{self.directory}/{_TOPIC_ID}", topic_id + "\n")

    def schema(self) -> StructType | None:
        """The pinned schema, if there is one."""
        from pyspark.sql.types import StructType

        path = f"{self.directory}/schema.json"
        if not self.storage.exists(path):
            return None
        try:
            return StructType.fromJson(json.loads(self.storage.read_text(path)))
        except (ValueError, KeyError, TypeError) as error:
            raise LoadError(f"{path} is not a Spark schema: {error}") from None

    def pin(self, schema: StructType) -> None:
        """Make this the schema from now on."""
        text = json.dumps(schema.jsonValue(), indent=2) + "\n"
        self.storage.write_text(f"{self.directory}/schema.json", text)
