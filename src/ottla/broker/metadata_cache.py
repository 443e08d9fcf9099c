"""Encoded Metadata replies: they are large, and clients ask for them again and again."""

from __future__ import annotations

from typing import Final, TypeAlias

Question: TypeAlias = tuple[int, str, bytes]
"""Version, listener, and the body of the request."""

MOST_BYTES: Final = 8 * 1024 * 1024


class MetadataCache:
    """Encoded replies by question, bounded in bytes."""

    __slots__ = ("_bytes", "_replies")

    def __init__(self) -> None:
        self._replies: dict[Question, bytes] = {}
        self._bytes = 0

    def get(self, question: Question) -> bytes | None:
        """Return the reply to a question, if it is known."""
        return self._replies.get(question)

    def put(self, question: Question, reply: bytes) -> None:
        """Keep a reply. If there is no room for it, forget all others."""
        size = len(question[2]) + len(reply)
        if self._bytes + size > MOST_BYTES:
            self.clear()
        if size <= MOST_BYTES:
            self._replies[question] = reply
            self._bytes += size

    def clear(self) -> None:
        """Forget everything: the cluster has changed."""
        self._replies.clear()
        self._bytes = 0
