"""The error of the harness."""

from __future__ import annotations


class BenchError(RuntimeError):
    """A measurement or its preparation failed. The message says what and, if known, why."""
