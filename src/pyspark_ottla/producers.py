"""Producers that outlive a task: a Spark worker process serves one task after the other, and
the next one of the same write needs no new connections and producer id.

A producer is given back only when all of its rows are stored, so it never carries anything
from one task into the next. One after an error is closed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark_ottla.producing import Producer
from pyspark_ottla.sink_settings import SinkSettings

MAX_IDLE = 4
_idle: dict[tuple[int, SinkSettings], Producer] = {}


@contextmanager
def producer_for(settings: SinkSettings) -> Iterator[Producer]:
    """A producer with these settings, an idle one if there is one; all rows flushed at the end."""
    key = (os.getpid(), settings)  # a forked process must not use its parent's sockets
    producer = _idle.pop(key, None) or Producer(settings)
    try:
        producer.begin()
        yield producer
        producer.flush()
    except BaseException:
        producer.close()
        raise
    _keep(key, producer)


def _keep(key: tuple[int, SinkSettings], producer: Producer) -> None:
    _idle[key] = producer
    while len(_idle) > MAX_IDLE:
        oldest = next(iter(_idle))
        _idle.pop(oldest).close()
