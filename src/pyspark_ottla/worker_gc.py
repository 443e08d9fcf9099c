"""Keeps loaded modules out of the garbage collection of a Spark worker.

Spark's worker runs a full garbage collection after every task. With the modules that numba
loads, one collection takes 0.1 s, which is longer than many tasks.
"""

from __future__ import annotations

import gc
from functools import cache


@cache
def freeze_modules(work: str) -> None:
    """Exclude all objects loaded so far from garbage collection, once per kind of work."""
    gc.freeze()
