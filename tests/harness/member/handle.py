"""The test's side of a member: its process, and what it has told so far."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.harness.deadline import Deadline
from tests.harness.member.report import Key
from tests.harness.member.spec import Spec

ROOT = Path(__file__).parents[3]
END_TIMEOUT_S = 15.0
LIBRDKAFKA_ABORT = "rd_kafka_cgrp_terminated: assert: !rd_kafka_assignment_in_progress"
"""librdkafka may abort in `close` during a rebalance: its issue 4792, found with Apache Kafka."""


class Event(NamedTuple):
    """Something that happened to a member, told by itself or done by the test."""

    at: float
    kind: str
    partitions: tuple[Key, ...] = ()
    offsets: tuple[tuple[Key, tuple[int, ...]], ...] = ()
    generation: int = -1
    lost: bool = False
    text: str = ""
    code: int | None = None


class Member:
    """A member from its start to its end."""

    def __init__(self, name: str, spec: Spec) -> None:
        self.name = name
        self.spec = spec
        self.events: list[Event] = []
        self._news = threading.Condition()
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.harness.member", spec.to_json()],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def owned(self) -> set[Key]:
        """What the member says it has, by what it was given and what was taken."""
        owned: set[Key] = set()
        for event in self.snapshot():
            if event.kind == "assigned":
                owned |= set(event.partitions)
            elif event.kind == "revoked":
                owned -= set(event.partitions)
            elif event.kind in ("killed", "closed"):
                owned = set()
        return owned

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def errors(self) -> str:
        """What it has said on stderr."""
        self._errors.seek(0)
        return self._errors.read()

    def snapshot(self) -> list[Event]:
        with self._news:
            return list(self.events)

    def of_kind(self, kind: str) -> list[Event]:
        return [event for event in self.snapshot() if event.kind == kind]

    def wait_for(self, true: Callable[[Self], bool], what: str, timeout_s: float = 40.0) -> None:
        """Wait until it has told what makes `true` so."""
        deadline = Deadline(timeout_s)
        while not true(self):
            with self._news:
                self._news.wait(min(0.05, deadline.left))
            assert not deadline.passed, f"{self.name}: {what}\n{self.tail()}"

    def stop(self) -> None:
        """Have it leave as a well-behaved consumer does, once it can hear that.

        If librdkafka aborts instead, the member owns nothing after the last thing it told: it may
        have left the group before it died.
        """
        self.wait_for(lambda member: bool(member.of_kind("started")), "it starts")
        self._process.send_signal(signal.SIGTERM)
        self._end()
        if self._process.returncode == -signal.SIGABRT and LIBRDKAFKA_ABORT in self.errors:
            self._note("killed", at=self.snapshot()[-1].at)
            return
        assert self.of_kind("closed"), f"{self.name} did not end well\n{self.tail()}"

    def kill(self) -> None:
        """Send SIGKILL: the member says goodbye to nobody."""
        self._process.kill()
        self._note("killed")
        self._end()

    def pause(self) -> None:
        """Send SIGSTOP: the member is there, and does nothing."""
        self._process.send_signal(signal.SIGSTOP)
        self._note("paused")

    def resume(self) -> None:
        self._note("resumed")
        self._process.send_signal(signal.SIGCONT)

    def tail(self) -> str:
        """Return the end of its output, for a failed assertion."""
        lines = [f"  {event.at:.3f} {event}" for event in self.snapshot()[-12:]]
        return "\n".join([f"{self.name} ({self.spec.client}):", *lines, self.errors[-2000:]])

    def close(self) -> None:
        """End the process however it is."""
        if self._process.poll() is None:
            self._process.kill()
        self._end()
        self._errors.close()

    def _end(self) -> None:
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"{self.name} did not end\n{self.tail()}") from None
        finally:
            self._reader.join(END_TIMEOUT_S)
            if self._process.stdout is not None:
                self._process.stdout.close()

    def _note(self, kind: str, at: float | None = None) -> None:
        with self._news:
            self.events.append(Event(time.monotonic() if at is None else at, kind))

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                return  # it was killed in the middle of a word
            event = _event(json.loads(line))
            with self._news:
                self.events.append(event)
                self._news.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _event(told: dict[str, object]) -> Event:
    partitions = told.get("partitions", ())
    offsets = told.get("offsets", ())
    assert isinstance(partitions, list | tuple)
    assert isinstance(offsets, list | tuple)
    return Event(
        at=float(str(told["at"])),
        kind=str(told["kind"]),
        partitions=tuple((topic, number) for topic, number in partitions),
        offsets=tuple(
            ((topic, number), tuple(found) if isinstance(found, list) else (found,))
            for topic, number, found in offsets
        ),
        generation=int(str(told.get("generation", -1))),
        lost=bool(told.get("lost", False)),
        text=f"{told.get('what', '')} {told.get('error', '')}".strip(),
        code=told["code"] if isinstance(told.get("code"), int) else None,  # type: ignore[arg-type]
    )
