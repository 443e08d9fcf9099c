"""Writes consumed messages to stdout, up to a maximum, while the reader is still there."""

from __future__ import annotations

import os
import select
import sys

from ottla.cli.consume.message_format import Writer
from ottla.client.consumer.fetched_records import Fetched


class MessageOutput:
    """Writes at most `max_messages` messages and counts them.

    There is no buffer: the messages of a fetch are written at once.
    """

    def __init__(self, writer: Writer, max_messages: int | None) -> None:
        self.count = 0
        self._writer = writer
        self._max_messages = max_messages
        self._descriptor = sys.stdout.fileno()
        self._watch = select.poll()
        self._watch.register(self._descriptor, 0)  # errors only: the reader closed the pipe

    @property
    def is_full(self) -> bool:
        """True if `max_messages` messages were written."""
        return self._max_messages is not None and self.count >= self._max_messages

    @property
    def is_abandoned(self) -> bool:
        """True if the reader has closed the pipe."""
        return bool(self._watch.poll(0))

    def write(self, fetched: Fetched) -> None:
        """Write messages, up to the maximum."""
        records = fetched.records
        if self._max_messages is not None:
            records = records[: self._max_messages - self.count]
        writer, partition = self._writer, fetched.partition
        data = memoryview(b"".join([writer(partition, record) for record in records]))
        self.count += len(records)  # before the write: the reader may interrupt us right after it
        while data:
            data = data[os.write(self._descriptor, data) :]
