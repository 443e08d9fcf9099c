"""One run at a time: a lock in the state directory, where that is on this machine.

Two runs over the same checkpoints would each think that its batch is the next.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from ottla_spark.pipelines.run.failures import QueryFailed
from ottla_spark.pipelines.spec.model import PipelineSpec


@contextlib.contextmanager
def state_lock(spec: PipelineSpec) -> Iterator[None]:
    """Hold the pipeline's state; QueryFailed when another run holds it."""
    if "://" in spec.state_path:
        yield
        return
    try:
        Path(spec.state_path).mkdir(parents=True, exist_ok=True)
        file = open(f"{spec.state_path}/lock", "w")  # noqa: SIM115
    except OSError as error:
        raise QueryFailed(f"state: {spec.state_path}: {error.strerror or error}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise QueryFailed(f"this pipeline runs already: {spec.state_path} is in use") from None
        yield
