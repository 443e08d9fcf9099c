"""Writing consumed messages to stdout: how many are wanted, and whether anybody still reads."""

from __future__ import annotations

import os
import select
import sys

from ottla.admin.fetched import Fetched
from ottla.cli.consume.message_format import Writer


class MessageOutput:
    """Writes at most `max_messages` messages and counts them.

    Without a buffer: a fetch is written as a whole, and what is written is on its way.
    """

    def __init__(self, writer: Writer, max_messages: int | None) -> None:
        self.count = 0
        self._writer = writer
        self._max_messages = max_messages
        self._descriptor = sys.stdout.fileno()
        self._watch = select.poll()
        self._watch.register(self._descriptor, 0)  # errors only: the other end closed

    @property
    def is_full(self) -> bool:
        """Whether as many messages as wanted were written."""
        return self._max_messages is not None and self.count >= self._max_messages

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody will read what is written from now on."""
        return bool(self._watch.poll(0))

    def write(self, fetched: Fetched) -> None:
        """Write messages, as far as they are wanted."""
        records = fetched.records
        if self._max_messages is not None:
            records = records[: self._max_messages - self.count]
        writer, partition = self._writer, fetched.partition
        data = memoryview(b"".join([writer(partition, record) for record in records]))
        self.count += len(records)  # before: whoever has read them may interrupt us at once
        while data:
            data = data[os.write(self._descriptor, data) :]
