"""A reply that is sent later."""

from __future__ import annotations

from typing import Protocol

from ottla.wire.message import Message


class Reply(Protocol):
    """The pending reply to a request. It is sent once; nothing happens if the client is gone."""

    def send(self, response: Message) -> None: ...
