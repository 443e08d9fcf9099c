"""How much a node may say about itself when it registers or becomes a voter.

All of it is in the metadata of every node from then on, and in responses to clients.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Final, Protocol

from ottla.model.errors import ApiError, ErrorCode

MOST_ITEMS: Final = 256
"""Listeners, features or log directories of a node."""

MOST_CHARACTERS: Final = 8 * 1024
"""In all names and hosts together. Old versions of Metadata have room for 32767 bytes."""


class Listener(Protocol):
    """A listener of a node in a request."""

    name: str
    host: str


def check_counts(*items: Sized) -> None:
    """Raise INVALID_REQUEST if there is more of something than a node can have."""
    if any(len(each) > MOST_ITEMS for each in items):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"more than {MOST_ITEMS} items of a node")


def check_listeners(listeners: Sequence[Listener]) -> None:
    """Raise INVALID_REQUEST if a node has too many listeners or says too much about them."""
    check_counts(listeners)
    check_texts(*(text for each in listeners for text in (each.name, each.host)))


def check_texts(*texts: str | None) -> None:
    """Raise INVALID_REQUEST if names are longer than any that make sense."""
    if sum(len(text or "") for text in texts) > MOST_CHARACTERS:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"names of over {MOST_CHARACTERS} characters")
