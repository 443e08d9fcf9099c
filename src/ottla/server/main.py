"""A broker as a process: signals, limits and messages for the operator."""

from __future__ import annotations

import gc
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping
from types import FrameType

from ottla.server.broker_process import Broker

_COLLECT_AFTER = 50_000  # allocations; the hot path makes no cycles


def run(
    properties: Mapping[str, str],
    *,
    memory: bool = False,
    metrics_port: int | None = None,
    on_ready: Callable[[str, int | None], None],
) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code, 1 after an unexpected error.

    Raise StartupError if the broker cannot start.
    """
    raise_file_limit()
    broker = Broker(properties, memory=memory, report=report, metrics_port=metrics_port)
    broker.open()

    def stop(signum: int, frame: FrameType | None) -> None:
        broker.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 20)
    on_ready(broker.bootstrap_servers, broker.metrics_port)
    try:
        broker.serve()
    except Exception:  # it has been reported; nothing may be written any more
        broker.abandon()
        return 1
    broker.close()
    return 0


def raise_file_limit() -> None:
    """Use as many open files as the system allows this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return  # the soft limit serves too, with fewer handles kept open


def report(message: str) -> None:
    """Tell the operator, with the time."""
    now = time.time()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
    print(f"[{stamp},{int(now * 1000) % 1000:03d}] {message}", file=sys.stderr, flush=True)
