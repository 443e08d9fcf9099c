"""Loads several topics one after the other, once or again and again.

Spark starts once. If one topic fails, the others are loaded all the same, and the command fails at
the end of the round.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.client.errors import ClientError
from ottla_spark.loads.errors import FAILED, LoadError

if TYPE_CHECKING:
    from ottla_spark.loads.run.result import JsonValue, LoadResult

_ADDED = frozenset(
    {"records", "rows", "dead_letters", "batches", "files", "bytes", "compacted_files", "seconds"}
)


class SomeFailed(LoadError):
    """Some of the topics failed. The exit code is that of the first one."""

    def __init__(self, failures: Sequence[tuple[str, LoadError | ClientError]]) -> None:
        names = ", ".join(name for name, _ in failures)
        super().__init__(f"{len(failures)} of the topics failed: {names}")
        first = failures[0][1]
        self.exit_code = first.exit_code if isinstance(first, LoadError) else FAILED


class Rounds:
    """The results of several topics, over all rounds."""

    def __init__(
        self, load: Callable[[str], LoadResult], say: Callable[[str], None], stop: threading.Event
    ) -> None:
        self.results: dict[str, dict[str, JsonValue]] = {}
        self.exit_code = 0
        self._load = load
        self._say = say
        self._stop = stop

    def run(self, topics: Callable[[], list[str]], interval_s: float | None) -> None:
        """Load all topics; with an interval, again and again until stopped.

        The topics are looked up before each round. Raise SomeFailed after a round with failures,
        and KeyboardInterrupt if a single round was stopped.
        """
        while True:
            began = time.monotonic()
            try:
                self._round(topics())
            except KeyboardInterrupt:
                if interval_s is None or not self._stop.is_set():
                    raise
            if interval_s is None:
                return
            if self._stop.wait(max(0.0, interval_s - (time.monotonic() - began))):
                return

    def _round(self, topics: Sequence[str]) -> None:
        failures: list[tuple[str, LoadError | ClientError]] = []
        for name in topics:
            if self._stop.is_set():
                raise KeyboardInterrupt
            try:
                self._add(name, self._load(name))
            except (LoadError, ClientError) as error:
                self._say(f"{name}: {error}")
                failures.append((name, error))
        if failures:
            raise SomeFailed(failures) from failures[0][1].__cause__

    def _add(self, name: str, result: LoadResult) -> None:
        self.exit_code = max(self.exit_code, result.exit_code)
        told, before = result.as_json(), self.results.get(name, {})
        for key in _ADDED & before.keys():
            old, new = before[key], told[key]
            told[key] = _number(old) + _number(new)
        seconds, records = _number(told["seconds"]), _number(told["records"])
        told["records_per_second"] = round(records / seconds, 1) if seconds else 0.0
        self.results[name] = told


def _number(value: JsonValue) -> int | float:
    assert isinstance(value, int | float)
    return value
