"""A pool of producers that tasks reuse.

A Spark worker process runs one task after the other. The next task of the same write needs no
new connections and no new producer id. A producer returns to the pool only when all of its rows
are stored, so no rows pass from one task to the next. After an error it is closed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark_ottla.options.sink_options import SinkSettings
from pyspark_ottla.sink.producer import Producer

MAX_IDLE = 4
_idle: dict[tuple[int, SinkSettings], Producer] = {}


@contextmanager
def producer_for(settings: SinkSettings, transactional_id: str | None = None) -> Iterator[Producer]:
    """Yield a producer with these settings, from the pool if possible. Flush it at the end.

    With a transactional id, it writes under a transaction, which is open at the end.
    """
    key = (os.getpid(), settings)  # a forked process must not use its parent's sockets
    producer = _idle.pop(key, None) or Producer(settings)
    try:
        producer.begin(transactional_id)
        yield producer
        producer.flush()
    except BaseException:
        producer.abort()
        producer.close()
        raise
    _keep(key, producer)


def _keep(key: tuple[int, SinkSettings], producer: Producer) -> None:
    _idle[key] = producer
    while len(_idle) > MAX_IDLE:
        oldest = next(iter(_idle))
        _idle.pop(oldest).close()
