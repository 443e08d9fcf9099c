"""A consumer group in which one member is killed. Its partitions move; each message counts once.

demo.py uses this file and starts it again as a process for each member. A member counts the
messages of one poll, reports them to its parent, and commits. If it is killed before it commits,
the member that gets the partition receives these messages again. The parent counts by offset, so
a message that arrives twice counts once.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from confluent_kafka import Consumer, TopicPartition

GROUP = "counters"
MEMBERS = 3
SESSION_TIMEOUT_MS = 2000
BATCH = 2000
TIMEOUT_S = 60.0
BROKER_SETTINGS = {
    "group.min.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.initial.rebalance.delay.ms": "0",
}


def live_as_member(bootstrap_servers: str, topic: str) -> None:
    """Run one member. It reports events as lines on stdout."""

    def tell(**fields: object) -> None:
        print(json.dumps(fields), flush=True)

    def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        tell(owns=[partition.partition for partition in partitions])

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 200,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic], on_assign=assigned)
    while True:
        offsets: dict[int, list[int]] = {}
        for message in consumer.consume(BATCH, timeout=0.1):
            if message.error():
                raise SystemExit(f"consuming failed: {message.error()}")
            offsets.setdefault(message.partition(), []).append(message.offset())
        if offsets:
            tell(counted=[[number, found[0], found[-1]] for number, found in offsets.items()])
            consumer.commit(
                offsets=[
                    TopicPartition(topic, number, found[-1] + 1)
                    for number, found in offsets.items()
                ],
                asynchronous=False,
            )


class Member:
    """The process of a member, and the partitions that it reports to own."""

    def __init__(self, name: str, ledger: Ledger, bootstrap_servers: str, topic: str) -> None:
        self.name = name
        self.owns: list[int] = []
        self._ledger = ledger
        self._process = subprocess.Popen(
            [sys.executable, __file__, bootstrap_servers, topic], stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def kill(self) -> None:
        """Kill the member with SIGKILL: it does not commit and does not leave the group."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self.owns = []

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                return  # the member was killed while it wrote the line
            told = json.loads(line)
            self.owns = told.get("owns", self.owns)
            for partition, first, last in told.get("counted", ()):
                self._ledger.add(partition, first, last)


class Ledger:
    """The messages that were counted, and how many arrived more than once."""

    def __init__(self) -> None:
        self.repeated = 0
        self._lock = threading.Lock()
        self._counted: dict[int, set[int]] = {}

    @property
    def total(self) -> int:
        """The number of different messages."""
        return sum(len(offsets) for offsets in list(self._counted.values()))

    def add(self, partition: int, first: int, last: int) -> None:
        """Count the messages of one partition from `first` to `last`."""
        with self._lock:
            known = self._counted.setdefault(partition, set())
            new = set(range(first, last + 1)) - known
            self.repeated += last + 1 - first - len(new)
            known |= new


class GroupRun:
    """Three members on one topic. One of them is killed."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self.ledger = Ledger()
        self.killed = ""
        self.orphans: list[int] = []
        self.heirs: dict[int, str] = {}
        self.moved_after_s = 0.0
        self._partitions = partitions
        self._members = [
            Member(f"consumer {number}", self.ledger, bootstrap_servers, topic)
            for number in range(1, MEMBERS + 1)
        ]

    def count(self, total: int) -> Iterator[int]:
        """Let them count `total` messages and kill one early. Report the progress."""
        deadline = time.monotonic() + TIMEOUT_S
        killed_at = 0.0
        while self.ledger.total < total or not self.heirs:
            if time.monotonic() > deadline:
                raise SystemExit(f"the group counted only {self.ledger.total} of {total} messages")
            if not self.killed and self.ledger.total > total // 20 and self._is_shared():
                killed_at = time.monotonic()
                self._kill_one()
            elif self.killed and not self.heirs and self._is_shared():
                self.heirs = self._owners(self.orphans)
                self.moved_after_s = time.monotonic() - killed_at
            yield self.ledger.total
            time.sleep(0.02)
        yield self.ledger.total

    def close(self) -> None:
        for member in self._members:
            member.kill()

    def _is_shared(self) -> bool:
        owned = sorted(number for member in self._members for number in member.owns)
        alive = [member for member in self._members if member.name != self.killed]
        return owned == list(range(self._partitions)) and all(member.owns for member in alive)

    def _kill_one(self) -> None:
        victim = self._members[1]
        self.killed, self.orphans = victim.name, victim.owns
        victim.kill()

    def _owners(self, partitions: list[int]) -> dict[int, str]:
        return {
            number: member.name
            for member in self._members
            for number in member.owns
            if number in partitions
        }


if __name__ == "__main__":
    live_as_member(*sys.argv[1:3])
