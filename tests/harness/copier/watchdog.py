"""Ends a copier whose client waits for a broker that is gone.

Clients hang there: librdkafka does not ask again for a group's coordinator that has left the
cluster, and ignores the timeout of the call (its issues 5511 and 5456). aiokafka goes on asking the
transaction coordinator that was (its issue 1145). Whoever runs them starts them again.
"""

from __future__ import annotations

import os
import threading

from tests.harness.copier.spec import FAILED

TICK_S = 0.1
TICKS = 40
"""So many ticks may pass without a step. They are counted, so that a pause is not one of them."""
FIRST_TICKS = 300
"""And this many before the first step."""


class Watchdog:
    """Ends the process if `step` is not called for four seconds in which the process runs."""

    def __init__(self) -> None:
        self._left = FIRST_TICKS
        threading.Thread(target=self._run, daemon=True).start()

    def step(self) -> None:
        """Note that the copier goes on."""
        self._left = TICKS

    def _run(self) -> None:
        pause = threading.Event()
        while self._left:
            pause.wait(TICK_S)
            self._left -= 1
        print("the client hangs", flush=True)
        os._exit(FAILED)
