"""Why a broker does not start, in words for the person who started it."""

from __future__ import annotations


class StartupError(Exception):
    """The broker cannot start. The message says what is wrong and what to do."""
