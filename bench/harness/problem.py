"""The one error of the harness: something that was to be measured could not be."""

from __future__ import annotations


class BenchError(RuntimeError):
    """A measurement or its preparation failed; the message says what and, if known, why."""
