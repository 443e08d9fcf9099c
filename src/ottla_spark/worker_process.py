"""A Python process of Spark's, quiet about farewells: `python -P worker_process.py MODULE`.

Spark closes the sockets of its Python processes when they had nothing to do for a minute, when
nobody wants their rows any more, and when a query stops. Through a Unix domain socket a process
notices at its last flush, and Spark's modules print a traceback then. That tells nobody
anything: here such a process just ends.

It is run by its path, because a process for a cluster may have this script without this package.
"""

from __future__ import annotations

import os
import runpy
import socket
import sys
from collections.abc import Callable

DAEMON = "pyspark.daemon"


def run(module: str) -> None:
    """Run a module of Spark's as the program that this process is."""
    try:
        if module == DAEMON:
            _run_daemon()
        else:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except BrokenPipeError:
        os._exit(0)


def _run_daemon() -> None:
    """Spark's daemon; the workers that it forks would print their tracebacks themselves."""
    from pyspark import daemon

    work: Callable[[socket.socket, bool], int] = daemon.worker

    def quiet_worker(sock: socket.socket, authenticated: bool) -> int:
        try:
            return work(sock, authenticated)
        except BrokenPipeError:
            os._exit(0)

    daemon.worker = quiet_worker
    daemon.manager()


if __name__ == "__main__":
    del sys.argv[0]  # the module and its arguments are left
    sys.path.insert(0, os.getcwd())  # as with `python -m MODULE`
    run(sys.argv[0])
