"""Progress of a running load, for whoever wants to show it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ottla.client.errors import ClientError
from ottla_spark.loads.options.load_options import LoadOptions
from ottla_spark.loads.run.batch_loader import BatchLoader
from ottla_spark.loads.run.tally import Tally
from ottla_spark.loads.run.topic_sample import TopicOffsets, topic_offsets
from ottla_spark.loads.state.load_directory import LoadDirectory

if TYPE_CHECKING:
    from ottla.client.cluster import Client

OFFSETS_EVERY_S = 5.0


class Listener:
    """Receives the progress of a load. This one ignores it; subclasses show it."""

    def say(self, line: str) -> None:
        """Show one line of text."""

    def started(self, records: int) -> None:
        """Show that the load has started, and how many records it will load."""

    def progress(self, tally: Tally, lag: int) -> None:
        """Show how far the load is, about once a second."""


class ProgressWatch:
    """Reports progress to a listener; asks the brokers for the lag every few seconds."""

    def __init__(
        self,
        client: Client,
        options: LoadOptions,
        directory: LoadDirectory,
        loader: BatchLoader,
        listener: Listener,
    ) -> None:
        self._client = client
        self._options = options
        self._directory = directory
        self._loader = loader
        self._listener = listener
        self._offsets: TopicOffsets | None = None
        self._asked = 0.0

    def report(self) -> None:
        """Report the progress so far."""
        if self._offsets is None or time.monotonic() - self._asked > OFFSETS_EVERY_S:
            self._asked = time.monotonic()
            try:
                self._offsets = topic_offsets(self._client, self._options)
            except ClientError:
                pass  # if the brokers stay away, the query fails with a message
        if self._offsets is not None:
            self._listener.progress(self._loader.tally, lag_of(self._directory, self._offsets))


def lag_of(directory: LoadDirectory, offsets: TopicOffsets) -> int:
    """Return how many records of the topic the load has not committed yet."""
    done = {
        int(partition): offset
        for (_, partition), offset in directory.checkpoint.positions().items()
    }
    return sum(
        max(0, end - max(done.get(partition, 0), offsets.earliest[partition]))
        for partition, end in offsets.latest.items()
    )
