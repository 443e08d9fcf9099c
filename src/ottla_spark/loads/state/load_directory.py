"""The directory of a load, with everything the load keeps between runs.

    load.json    topic, table, format and other options that the first run fixed
    schema.json  the fields of the values, as a Spark schema; grows with --evolve
    topic-id     the id of the topic that was loaded last, as hex; a recreated topic has another
    failures     how many runs in a row failed in the same batch; not there after a success
    schema-digest  tells whether --schema has changed since the last run
    checkpoint/  Spark's checkpoint: the offsets that were loaded
    lock         locked while a load runs, if the directory is on this machine

It is TABLE/_ottla/TOPIC unless --checkpoint names another. Readers of tables ignore names that
start with an underscore.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from ottla_spark.loads.errors import LoadError, LoadUsageError
from ottla_spark.loads.state.arrow_storage import ArrowStorage
from ottla_spark.loads.state.checkpoint import Checkpoint
from ottla_spark.loads.state.checkpoint_copy import CheckpointCopy
from ottla_spark.loads.state.object_store import is_object_store
from ottla_spark.loads.state.storage import Storage, local_path

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

HIDDEN = "_ottla"
_TOPIC_ID = "topic-id"
_LOCK = "lock"
_FAILURES = "failures"
_SCHEMA_DIGEST = "schema-digest"


def _open_lock(directory: str) -> TextIO:
    try:
        os.makedirs(directory, exist_ok=True)
        return open(os.path.join(directory, _LOCK), "w")
    except OSError as error:
        raise LoadUsageError(f"cannot write to {directory}: {error.strerror}") from None


class LoadDirectory:
    """The files of one load in `directory`."""

    def __init__(self, storage: Storage, directory: str) -> None:
        self.storage = storage
        self.directory = directory
        self.checkpoint = Checkpoint(storage, f"{directory}/checkpoint")
        self._copy: CheckpointCopy | None = None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the directory for this process; raise LoadError if another load holds it.

        In an object store there is no lock. There Spark's checkpoint is copied to this machine.
        """
        local = local_path(self.directory)
        if local is None:
            with self._copied():
                yield
            return
        with _open_lock(local) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise LoadError(
                    f"this load is already running: another process uses {local}"
                ) from None
            yield

    def clear(self) -> None:
        """Forget everything, so that the load starts over. The lock stays."""
        for name in self.storage.children(self.directory):
            if name != _LOCK:
                self.storage.remove(f"{self.directory}/{name}")
        if self._copy is not None:
            self._copy.clear()

    @contextmanager
    def _copied(self) -> Iterator[None]:
        """Let `checkpoint` be a copy on this machine, which is stored again at the end."""
        if not is_object_store(self.directory):
            yield
            return
        assert isinstance(self.storage, ArrowStorage), "object stores are used without Java"
        original = self.checkpoint
        copy = CheckpointCopy(self.storage, original.path)
        try:
            copy.fetch()
            self._copy, self.checkpoint = copy, Checkpoint(self.storage, copy.path)
            yield
            copy.store()
        finally:
            self._copy, self.checkpoint = None, original
            copy.close()

    def keep_plan(self) -> None:
        """Store Spark's plan of a batch where other machines find it, before the batch is written.

        Only a checkpoint in an object store needs that.
        """
        if self._copy is not None:
            self._copy.store()

    def claim(self, identity: Mapping[str, str]) -> None:
        """Write the options down at the first run; later raise LoadUsageError if they differ."""
        path = f"{self.directory}/load.json"
        if not self.storage.exists(path):
            self.storage.write_text(path, json.dumps(dict(identity), indent=2) + "\n")
            return
        self.check_identity(identity)

    @property
    def is_claimed(self) -> bool:
        """True after the first run."""
        return self.storage.exists(f"{self.directory}/load.json")

    def check_identity(self, identity: Mapping[str, str]) -> None:
        """Raise LoadUsageError if the first run had other options."""
        path = f"{self.directory}/load.json"
        noted = json.loads(self.storage.read_text(path))
        for name, value in identity.items():
            if noted.get(name) != value:
                raise LoadUsageError(
                    f"{self.directory} belongs to a load with {name} {noted.get(name)!r}, not"
                    f" {value!r}: use the options of its first run, or another table"
                )

    def topic_id(self) -> str | None:
        """Return the id of the topic that was loaded last; None before the first run."""
        path = f"{self.directory}/{_TOPIC_ID}"
        return self.storage.read_text(path).strip() if self.storage.exists(path) else None

    def set_topic_id(self, topic_id: str) -> None:
        """Write down the id of the topic whose offsets the checkpoint has."""
        self.storage.write_text(f"{self.directory}/{_TOPIC_ID}", topic_id + "\n")

    def failures(self) -> int:
        """Return how many runs in a row failed in the next batch."""
        path = f"{self.directory}/{_FAILURES}"
        text = self.storage.read_text(path) if self.storage.exists(path) else ""
        return int(text) if text.strip().isdigit() else 0

    def add_failure(self) -> None:
        """Count a run that failed in the next batch."""
        self.storage.write_text(f"{self.directory}/{_FAILURES}", f"{self.failures() + 1}\n")

    def clear_failures(self) -> None:
        """Start counting again: a batch was loaded."""
        self.storage.remove(f"{self.directory}/{_FAILURES}")

    def schema_digest(self) -> str:
        """Return the digest of --schema of the last run; empty if there was none."""
        path = f"{self.directory}/{_SCHEMA_DIGEST}"
        return self.storage.read_text(path).strip() if self.storage.exists(path) else ""

    def set_schema_digest(self, digest: str) -> None:
        """Write down the digest of --schema, which tells whether it has changed."""
        if digest != self.schema_digest():
            self.storage.write_text(f"{self.directory}/{_SCHEMA_DIGEST}", digest + "\n")

    def schema(self) -> StructType | None:
        """Return the saved schema; None before the first run."""
        from pyspark.sql.types import StructType

        path = f"{self.directory}/schema.json"
        if not self.storage.exists(path):
            return None
        try:
            return StructType.fromJson(json.loads(self.storage.read_text(path)))
        except (ValueError, KeyError, TypeError) as error:
            raise LoadError(f"{path} is not a Spark schema: {error}") from None

    def save_schema(self, schema: StructType) -> None:
        """Save the schema for this and later runs."""
        text = json.dumps(schema.jsonValue(), indent=2) + "\n"
        self.storage.write_text(f"{self.directory}/schema.json", text)
