"""What a decision of the controller is: records to write, and what to tell the client.

The functions that decide are pure: they read an image and change nothing. A decision takes
effect when its records are written to the metadata log and applied; a request that only
validates drops them.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from ottla.wire.message import Message

R = TypeVar("R")


class Decision(NamedTuple, Generic[R]):
    """The records that make it so, and one result for each thing that was asked."""

    records: list[Message]
    results: list[R]
