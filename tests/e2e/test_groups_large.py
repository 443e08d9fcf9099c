"""A group of a thousand members comes together, and nobody else has to wait for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from uuid import uuid4

import pytest

from tests.harness.classic import ClassicMember
from tests.harness.consumer_protocol import NewMember
from tests.harness.deadline import Deadline
from tests.harness.group_broker import await_coordinator
from tests.harness.process import BrokerProcess
from tests.harness.raw import RawConnection
from tests.harness.topics import create_topic

NONE = 0
MEMBERS = 1000
PARTITIONS = 1000
MOST_WORK_S = 0.5
SETTINGS = {
    "group.initial.rebalance.delay.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
}


class Bystander:
    """A member of a small group that beats all the time.

    It remembers the most that the broker has worked, for others, while it waited for an answer:
    on a busy machine that says more about the broker than the time on the wall.
    """

    def __init__(self, broker: BrokerProcess) -> None:
        self.most_work_s = 0.0
        self.code = NONE
        self._broker = broker
        self._raw = RawConnection(broker.bootstrap_servers, timeout_s=60)
        self._member = ClassicMember(self._raw, f"small-{uuid4().hex[:8]}")
        self._member.stable()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(60)
        self._raw.close()

    def _beat(self) -> None:
        while not self._stop.wait(0.02):
            before_s = self._broker.cpu_s()
            self.code = self.code or self._member.heartbeat()
            self.most_work_s = max(self.most_work_s, self._broker.cpu_s() - before_s)


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(None, settings=SETTINGS) as broker:
        await_coordinator(broker.bootstrap_servers)
        create_topic(broker.bootstrap_servers, "wide", PARTITIONS)
        yield broker


@pytest.fixture
def servers(broker: BrokerProcess) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def bystander(broker: BrokerProcess) -> Iterator[Bystander]:
    watching = Bystander(broker)
    yield watching
    watching.close()
    assert watching.code == NONE
    assert watching.most_work_s < MOST_WORK_S


@pytest.mark.slow
def test_a_thousand_classic_members(servers: str, bystander: Bystander) -> None:
    with ExitStack() as stack:
        members = [
            ClassicMember(
                stack.enter_context(RawConnection(servers, timeout_s=60)),
                "large",
                session_timeout_ms=60_000,
                rebalance_timeout_ms=60_000,
            )
            for _ in range(MEMBERS)
        ]
        for member in members:
            member.receive_join(member.send_join())
        waiting = [member.send_join() for member in members]
        answers = [m.receive_join(w) for m, w in zip(members, waiting, strict=True)]
        assert {answer.error_code for answer in answers} == {NONE}
        assert {answer.generation_id for answer in answers} == {1}
        (leader,) = [m for m in members if m.member_id == answers[0].leader]
        (told,) = [answer for answer in answers if answer.members]
        assert {found.member_id for found in told.members} == {m.member_id for m in members}
        given = {member.member_id: member.member_id.encode() for member in members}
        assert leader.sync(given).error_code == NONE
        for member in members:
            assert member.sync().assignment == member.member_id.encode()
        assert {member.heartbeat() for member in members} == {NONE}


@pytest.mark.slow
def test_a_thousand_members_of_the_new_protocol(servers: str, bystander: Bystander) -> None:
    with RawConnection(servers, timeout_s=60) as raw:
        members = [NewMember(raw, "large", ["wide"]) for _ in range(MEMBERS)]
        for member in members:
            assert member.beat().error_code == NONE
        deadline = Deadline(60)
        while not all(_shares(member) == 1 for member in members):
            assert not deadline.passed, sorted(_shares(member) for member in members)[:5]
            for member in members:
                assert member.beat(topic_partitions=member.told()).error_code == NONE
        owned = [p for member in members for parts in member.owned.values() for p in parts]
        assert sorted(owned) == list(range(PARTITIONS))


def _shares(member: NewMember) -> int:
    return sum(len(parts) for parts in member.owned.values())
