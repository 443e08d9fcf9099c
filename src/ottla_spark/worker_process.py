"""Runs one of Spark's Python processes: `python -P worker_process.py MODULE`.

Spark closes the socket of a Python process when it was idle for a minute, when its rows are no
longer needed, and when a query stops. With Unix domain sockets the process notices this at its
last flush, and Spark's modules would print a useless traceback. Here the process just exits.

Spark starts this file by its path, because a process may have the file but not the package.
"""

from __future__ import annotations

import os
import runpy
import socket
import sys
from collections.abc import Callable

DAEMON = "pyspark.daemon"


def run(module: str) -> None:
    """Run a module of Spark as the main program."""
    try:
        if module == DAEMON:
            _run_daemon()
        else:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except BrokenPipeError:
        os._exit(0)


def _run_daemon() -> None:
    """Run Spark's daemon, with workers that exit without a traceback."""
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
    del sys.argv[0]  # leaves the module and its arguments
    sys.path.insert(0, os.getcwd())  # as with `python -m MODULE`
    run(sys.argv[0])
