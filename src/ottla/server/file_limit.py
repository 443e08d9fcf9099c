"""The limit of open files of this process."""

from __future__ import annotations

import resource
from typing import Final

_LARGEST: Final = 1 << 20
"""The largest limit to ask for. On macOS and in containers the limit may be `unlimited`."""
_SMALLER: Final = (1 << 16, 10_240, 4096)
"""The limits to try after that: macOS allows kern.maxfilesperproc at most, often 10240."""


def raise_file_limit() -> None:
    """Use as many open files as the system allows this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _LARGEST if _is_unlimited(hard) else hard
    for wanted in (allowed, *_SMALLER):
        if _is_unlimited(soft) or soft >= wanted or wanted > allowed:
            continue
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # a smaller one may be allowed, and the old one serves too
            continue
        return


def file_limit() -> int:
    """Return how many files this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _LARGEST if _is_unlimited(soft) else soft


def _is_unlimited(limit: int) -> bool:
    return limit == resource.RLIM_INFINITY or not 0 <= limit < 1 << 31
