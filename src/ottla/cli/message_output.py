"""Writing consumed messages to stdout: how many are wanted, and whether anybody still reads."""

from __future__ import annotations

import select
import sys

from ottla.admin.fetched import Fetched
from ottla.cli.message_format import Writer


class MessageOutput:
    """Writes at most `max_messages` messages and counts them."""

    def __init__(self, writer: Writer, max_messages: int | None) -> None:
        self.count = 0
        self._writer = writer
        self._max_messages = max_messages
        self._watch = select.poll()
        self._watch.register(sys.stdout.fileno(), 0)  # errors only: the other end closed

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
        sys.stdout.buffer.write(b"".join([writer(partition, record) for record in records]))
        self.count += len(records)

    def flush(self) -> None:
        """Hand what was written to the other end."""
        sys.stdout.buffer.flush()
