"""Everything at once: members join, leave, die, stand still, and the broker is restarted.

What happens is drawn from a seed, so that a failure can be repeated: set OTTLA_CHAOS_SEED, and
OTTLA_CHAOS_STEPS for a longer run.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

import pytest

from tests.harness.background_load import Load
from tests.harness.group import Group, partitions_of
from tests.harness.group_broker import GROUP_SETTINGS
from tests.harness.member.handle import Member
from tests.harness.member.spec import Spec
from tests.harness.process import BrokerProcess
from tests.harness.topics import create_topic

TOPIC = "work"
PARTITIONS = 8
MOST_MEMBERS = 5
SESSION_TIMEOUT_MS = 2000
STEPS = int(os.environ.get("OTTLA_CHAOS_STEPS", "16"))
SEED = int(os.environ.get("OTTLA_CHAOS_SEED", "7"))
SETTINGS = {
    **GROUP_SETTINGS,
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    # Those who died count until their sessions are over.
    "group.max.size": "50",
    "group.consumer.max.size": "50",
}


class Chaos:
    """One random deed after the other; `log` tells what was done."""

    def __init__(self, random_: random.Random, broker: BrokerProcess, group: Group) -> None:
        self.log: list[str] = []
        self._random = random_
        self._broker = broker
        self._group = group
        self._paused: list[Member] = []

    @property
    def awake(self) -> list[Member]:
        return [m for m in self._group.members if m.alive and m not in self._paused]

    def step(self) -> None:
        deeds = [self._start] * 3 + [self._wait] * 2
        if len(self.awake) > 1:
            deeds += [self._stop, self._kill, self._pause]
        if self._paused:
            deeds += [self._resume] * 2
        if len(self.log) % 8 == 7:
            deeds = [self._restart]
        deed = self._random.choice(deeds)
        self.log.append(f"{time.monotonic():.3f} {deed.__name__[1:]}")
        deed()

    def end(self) -> None:
        """Resume every member that is paused, and start one if there is none."""
        while self._paused:
            self._resume()
        if not self.awake:
            self._start()

    def _start(self) -> None:
        if len(self.awake) + len(self._paused) < MOST_MEMBERS:
            self._group.start(work_ms=self._random.choice([0, 0, 20]))

    def _wait(self) -> None:
        time.sleep(self._random.choice([0.1, 0.5, 1.0]))

    def _stop(self) -> None:
        self._random.choice(self.awake).stop()

    def _kill(self) -> None:
        self._random.choice(self.awake).kill()

    def _pause(self) -> None:
        member = self._random.choice(self.awake)
        member.pause()
        self._paused.append(member)

    def _resume(self) -> None:
        """Resume a member after the end of its session: before that it has lost nothing."""
        member = self._paused.pop(0)
        since = time.monotonic() - member.of_kind("paused")[-1].at
        time.sleep(max(0.0, SESSION_TIMEOUT_MS / 1000 + 0.7 - since))
        member.resume()

    def _restart(self) -> None:
        how = self._random.choice([signal.SIGTERM, signal.SIGKILL])
        self.log[-1] += f" by {how.name}"
        if how == signal.SIGKILL:
            self._broker.kill()
        else:
            self._broker.stop(how)
        self._broker.start()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("client", "protocol", "assignor"),
    [
        ("confluent", "classic", "range"),
        ("confluent", "classic", "cooperative-sticky"),
        ("confluent", "consumer", None),
        ("aiokafka", "classic", "roundrobin"),
    ],
)
def test_no_record_is_lost_and_no_partition_has_two_owners(
    start_broker: Callable[..., BrokerProcess], client: str, protocol: str, assignor: str | None
) -> None:
    broker = start_broker(SETTINGS)
    servers = broker.bootstrap_servers
    create_topic(servers, TOPIC, PARTITIONS)
    keys = partitions_of(TOPIC, PARTITIONS)
    spec = Spec(
        client,
        servers,
        "g",
        (TOPIC,),
        protocol=protocol,
        assignor=assignor,
        session_timeout_ms=SESSION_TIMEOUT_MS,
    )
    with Group(spec) as group, Load(servers, TOPIC, PARTITIONS, per_second=300) as load:
        chaos = Chaos(random.Random(SEED), broker, group)
        group.gather(keys, 2)
        try:
            for _ in range(STEPS):
                chaos.step()
            chaos.end()
            group.settle(keys, *chaos.awake)
            group.finish(load.stop(), once=False)
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *chaos.log])) from error
