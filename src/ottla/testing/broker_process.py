"""A broker of a test's cluster, as a process that the test can kill and pause."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM, Signals

from ottla.server.errors import StartupError
from ottla.server.forked_brokers import READY
from ottla.testing.broker_log import BROKER_LOG

_STOP_TIMEOUT_S = 60
_STAMP = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] ")
"""The time in front of a broker's message. The log has one of its own."""


class ProcessBroker:
    """A broker that can be started again after it was stopped or killed.

    Its process ends when that of the test does, whatever ends it.
    """

    def __init__(self, node_id: int, settings: Callable[[], dict[str, str]], memory: bool) -> None:
        self._node_id = node_id
        self._settings = settings
        self._memory = memory
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._address = ""

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect, while it runs."""
        assert self._process is not None
        return self._address

    def begin(self, brokers: int) -> None:
        """Start, as one of `brokers` brokers, without waiting until it is ready."""
        start = {
            "node_id": self._node_id,
            "properties": self._settings(),
            "memory": self._memory,
            "brokers": brokers,
        }
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [sys.executable, "-m", "ottla.server.child_main"], stdin=pipe, stdout=pipe, stderr=pipe
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(start).encode() + b"\n")
        process.stdin.flush()
        self._process = process
        self._reader = threading.Thread(target=_keep_messages, args=(process,), daemon=True)
        self._reader.start()

    def wait_until_ready(self) -> None:
        """Return when clients can connect. Raise StartupError if it cannot start."""
        process = self._running()
        assert process.stdout is not None
        kind, _, text = process.stdout.readline().decode().rstrip("\n").partition(" ")
        if kind != READY:
            self._end(process)
            raise StartupError(text or f"broker {self._node_id} has ended: {_how(process)}")
        self._address = text

    def stop(self, *, hand_over: bool) -> None:
        """Stop cleanly; fine if it does not run. Raise RuntimeError if it had ended by itself."""
        process = self._process
        if process is None:
            return
        process.send_signal(SIGCONT)
        if hand_over:
            process.send_signal(SIGTERM)
        self._end(process, closes_first=not hand_over)
        if process.returncode:
            raise RuntimeError(f"broker {self._node_id} has ended: {_how(process)}")

    def kill(self) -> None:
        """End the process with SIGKILL, as a crash would."""
        process = self._running()
        process.send_signal(SIGKILL)
        self._end(process)

    def pause(self) -> None:
        """Stop the process with SIGSTOP: its connections stay open and nobody answers."""
        self._running().send_signal(SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        self._running().send_signal(SIGCONT)

    def metrics(self) -> str:
        """Raise RuntimeError: a process would need a port for that."""
        raise RuntimeError("metrics() needs brokers in this process, without processes=True")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError(f"broker {self._node_id} is not running")
        return self._process

    def _end(self, process: subprocess.Popen[bytes], *, closes_first: bool = False) -> None:
        """Wait until the process has ended, and close the pipes."""
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert self._reader is not None
        if closes_first:
            process.stdin.close()
        try:
            process.wait(_STOP_TIMEOUT_S)
        finally:
            process.kill()
            process.wait()
            self._reader.join()
            for pipe in (process.stdin, process.stdout, process.stderr):
                pipe.close()
            self._process = None


def _keep_messages(process: subprocess.Popen[bytes]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        BROKER_LOG.add(_STAMP.sub("", line.decode(errors="replace").rstrip("\n")))


def _how(process: subprocess.Popen[bytes]) -> str:
    code = process.returncode
    return f"killed by {Signals(-code).name}" if code < 0 else f"exit code {code}"
