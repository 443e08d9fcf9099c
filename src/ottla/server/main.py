"""A broker as a process: signals, limits and messages for the operator."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Mapping
from types import FrameType

from ottla.server.broker_process import Broker
from ottla.server.errors import StartupError
from ottla.server.file_limit import raise_file_limit


def run(
    properties: Mapping[str, str],
    *,
    memory: bool = False,
    metrics_port: int | None = None,
    on_ready: Callable[[str], None],
    on_metrics: Callable[[int], None] = lambda port: None,
    name: str = "",
    lifeline: int | None = None,
    brokers: int = 1,
) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code, 1 after an unexpected error.

    `name` is put in front of messages. A broker of a cluster that starts and stops as a whole
    has a `lifeline`, the reading end of a pipe: when the pipe closes, the broker stops without
    waiting for others to take over. Then SIGINT is for the process that has the other end. It is
    ready when it knows of this many `brokers` that are.

    Until the broker is open, each of these signals should end the process at once, as the system
    does by default: nothing is lost, the next start recovers the logs. Raise StartupError if the
    broker cannot start.
    """
    raise_file_limit()
    tell = (lambda message: report(f"{name}: {message}")) if name else report
    broker = Broker(properties, memory=memory, report=tell, metrics_port=metrics_port)
    broker.open()

    def stop(signum: int, frame: FrameType | None) -> None:
        broker.stop()

    signal.signal(signal.SIGTERM, stop)
    if lifeline is None:
        signal.signal(signal.SIGINT, stop)
    else:
        _stop_at_end_of(lifeline, broker)
    broker.watch_collections()
    refusals: list[str] = []

    def ready() -> None:
        on_ready(broker.ready_at)
        if broker.metrics_port is not None:
            on_metrics(broker.metrics_port)

    def refused(reason: str) -> None:
        refusals.append(reason)
        broker.stop(hand_over=False)

    broker.when_ready(ready, refused, brokers)
    try:
        broker.serve()
    except Exception:  # it has been reported; nothing may be written any more
        broker.abandon()
        return 1
    broker.close()
    if refusals:
        raise StartupError(refusals[0])
    return 0


def _stop_at_end_of(lifeline: int, broker: Broker) -> None:
    import os
    import threading

    def wait() -> None:
        while os.read(lifeline, 1):
            pass
        broker.stop(hand_over=False)

    threading.Thread(target=wait, name="ottla-lifeline", daemon=True).start()


def report(message: str) -> None:
    """Tell the operator, with the time."""
    now = time.time()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
    print(f"[{stamp},{int(now * 1000) % 1000:03d}] {message}", file=sys.stderr, flush=True)
