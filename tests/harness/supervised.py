"""A program that is killed and paused by tests, and started again when it cannot go on."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

END_TIMEOUT_S = 60.0
_WATCH_S = 0.05


class Supervised:
    """Runs a program. At most one process is the present one; those before it may be zombies.

    `restarts_on` has the exit codes after which it is started again. A zombie must end with one of
    `zombie_ends`. A process that was told to stop must end with one of `stops`.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        restarts_on: Collection[int],
        zombie_ends: Collection[int],
        stops: Collection[int],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command = list(command)
        self._log = log
        self._restarts_on = restarts_on
        self._zombie_ends = zombie_ends
        self._stops = stops
        self._environment = {**os.environ, **(environment or {})}
        self._lock = threading.Lock()
        self._is_closing = threading.Event()
        self._process = self._launch()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def _launch(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)

    def _watch(self) -> None:
        while not self._is_closing.wait(_WATCH_S):
            with self._lock:
                if self._process.poll() in self._restarts_on and not self._is_closing.is_set():
                    self._process = self._launch()

    def kill(self) -> None:
        """End the present process with SIGKILL, and start the next one."""
        with self._lock:
            _kill(self._process)
            self._process = self._launch()

    def replace(self) -> subprocess.Popen[bytes]:
        """Stop the present process with SIGSTOP, start the next one, and return the zombie."""
        with self._lock:
            zombie = self._process
            zombie.send_signal(signal.SIGSTOP)
            self._process = self._launch()
        return zombie

    def await_end(self, zombie: subprocess.Popen[bytes]) -> None:
        """Let a zombie go on. It must notice that it has no right to, and end."""
        zombie.send_signal(signal.SIGCONT)
        try:
            code = zombie.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            _kill(zombie)
            raise AssertionError(f"a zombie goes on\n{self.tail()}") from None
        assert code in self._zombie_ends, f"a zombie ended with {code}\n{self.tail()}"

    def stop(self) -> None:
        """End the present process with SIGTERM."""
        self._end_watch()
        self._process.terminate()
        try:
            code = self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            _kill(self._process)
            raise AssertionError(f"a program did not end\n{self.tail()}") from None
        allowed = {*self._stops, *self._restarts_on, -signal.SIGTERM}
        assert code in allowed, f"a program ended with {code}\n{self.tail()}"

    def tail(self) -> str:
        """Return the last messages of its processes."""
        return self._log.read_text(errors="replace")[-3000:]

    def close(self) -> None:
        """Kill the present process."""
        self._end_watch()
        _kill(self._process)

    def _end_watch(self) -> None:
        self._is_closing.set()
        self._watcher.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
