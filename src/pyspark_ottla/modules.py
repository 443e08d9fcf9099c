"""Modules of a worker process, kept out of Spark's garbage collection.

Spark's worker collects garbage after every task, and of the modules that numba brings that takes
0.1 s, which is longer than many a task.
"""

from __future__ import annotations

import gc
from functools import cache


@cache
def set_modules_aside(work: str) -> None:
    """After the first task of this kind of work, leave what is loaded by now alone for good."""
    gc.freeze()
