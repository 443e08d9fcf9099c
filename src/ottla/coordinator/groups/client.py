"""The client that sent a request."""

from __future__ import annotations

from typing import NamedTuple


class Client(NamedTuple):
    """Who sent a request, and in which version."""

    client_id: str
    client_host: str
    version: int
