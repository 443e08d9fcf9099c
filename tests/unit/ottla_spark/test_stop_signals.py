"""Stop signals that arrive at any moment."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from ottla_spark.stop_signals import StopEvent

ROUNDS = 1000
WAITS = """\
from ottla_spark.stop_signals import stop_on_signals
while True:
    with stop_on_signals() as stop:
        print("waiting", flush=True)
        while not stop.wait(0.00001):
            pass
"""


@pytest.mark.timeout(60)
def test_a_signal_at_any_moment_of_a_wait_ends_it() -> None:
    chance = random.Random(1)
    command = [sys.executable, "-c", WAITS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout is not None
        try:
            for _ in range(ROUNDS):
                assert waiting.stdout.readline() == "waiting\n"
                time.sleep(chance.random() * 0.0003)
                waiting.send_signal(signal.SIGTERM)
            assert waiting.stdout.readline() == "waiting\n"
        finally:
            waiting.kill()


def test_every_waiting_thread_wakes_up() -> None:
    asked = StopEvent()
    assert not asked.wait(0.001)
    threads = [threading.Thread(target=asked.wait, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    asked.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert asked.is_set()
    assert asked.wait()
