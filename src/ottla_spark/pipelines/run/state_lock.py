"""A lock file in the state directory, so that a pipeline runs only once at a time.

Two runs with the same checkpoints would write the same batches. The lock works only if the
directory is on this machine.
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
    """Lock the state directory; raise QueryFailed if another run holds the lock."""
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
            raise QueryFailed(
                f"this pipeline is already running: {spec.state_path} is in use"
            ) from None
        yield
