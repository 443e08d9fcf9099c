"""Proposals of ISRs: what the high watermark waits for, and what each answer means."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.config.topic import LogConfig
from ottla.model.errors import ErrorCode
from ottla.replication.isr_changes import IsrChanges
from ottla.replication.partition_leader import PartitionLeader
from tests.support.replication import Replica, Waiter, image


class Controller:
    """Keeps what is proposed until the test answers it; timers run when the test says so."""

    def __init__(self) -> None:
        self.active = {1, 2, 3}
        self.proposals: list[tuple[int, ...] | None] = []
        self._leaders: list[PartitionLeader] = []
        self._done: Callable[[dict[PartitionLeader, int]], None] | None = None
        self._soon: list[Callable[[], None]] = []
        self._later: list[Callable[[], None]] = []

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        return broker_id in self.active

    def propose(
        self, leaders: list[PartitionLeader], done: Callable[[dict[PartitionLeader, int]], None]
    ) -> None:
        self.proposals += [leader.proposed_isr for leader in leaders]
        self._leaders, self._done = leaders, done

    def at_wake_up_end(self, action: Callable[[], None]) -> None:
        self._soon.append(action)

    def later(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._later.append(action)

    def end_wake_up(self) -> None:
        soon, self._soon = self._soon, []
        for action in soon:
            action()

    def run_timers(self) -> None:
        later, self._later = self._later, []
        for action in later:
            action()
        self.end_wake_up()

    def answer(self, code: ErrorCode) -> None:
        done, self._done = self._done, None
        assert done is not None, "nothing is proposed"
        done({leader: int(code) for leader in self._leaders})


class Case:
    """A leader with followers 2, in sync, and 3, which has caught up and is proposed."""

    def __init__(self) -> None:
        self.controller = Controller()
        self.replica = Replica(1, image(isr=(1, 2)))
        self.replica.partition.topic.isr_changes = IsrChanges(self.controller)
        self.fetch(3, 0)
        self.controller.end_wake_up()
        assert self.controller.proposals == [(1, 2, 3)]

    def fetch(self, follower: int, offset: int) -> None:
        self.replica.partition.as_leader().record_fetch(follower, offset, 0.0)

    def write_that_waits_for_the_newcomer(self) -> Waiter:
        waiter = self.replica.write(5)
        self.fetch(2, 5)
        assert waiter.told == []
        return waiter


REFUSALS = [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED]
UNCERTAIN = [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH]
TOLD_LATER = [ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH]


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refused_proposal_commits_what_the_isr_has(code: ErrorCode) -> None:
    case = Case()
    waiter = case.write_that_waits_for_the_newcomer()
    case.controller.answer(code)
    assert case.replica.log.high_watermark == 5
    assert waiter.told == [None]


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refused_follower_is_proposed_again_once_it_is_eligible(code: ErrorCode) -> None:
    case = Case()
    case.controller.active.remove(3)
    case.controller.answer(code)
    case.controller.run_timers()
    assert case.controller.proposals == [(1, 2, 3)]
    case.controller.active.add(3)
    case.fetch(3, 0)
    case.controller.end_wake_up()
    assert case.controller.proposals == [(1, 2, 3), (1, 2, 3)]


@pytest.mark.parametrize("code", UNCERTAIN)
def test_a_proposal_without_an_answer_holds_the_high_watermark_and_is_repeated(
    code: ErrorCode,
) -> None:
    case = Case()
    waiter = case.write_that_waits_for_the_newcomer()
    case.controller.answer(code)
    assert case.replica.log.high_watermark == 0
    case.controller.run_timers()
    assert case.controller.proposals == [(1, 2, 3), (1, 2, 3)]
    assert waiter.told == []
    case.controller.answer(ErrorCode.INELIGIBLE_REPLICA)
    assert waiter.told == [None]


@pytest.mark.parametrize("code", TOLD_LATER)
def test_the_metadata_ends_a_proposal_that_the_controller_knows(code: ErrorCode) -> None:
    case = Case()
    waiter = case.write_that_waits_for_the_newcomer()
    case.controller.answer(code)
    case.controller.run_timers()
    assert waiter.told == []
    assert case.controller.proposals == [(1, 2, 3)]
    case.replica.take_role(image(isr=(1, 2)))
    assert waiter.told == [None]


class LonelyLeader:
    """A leader that is alone in the ISR, writes between all fetches, and has a follower 2."""

    def __init__(self, config: LogConfig | None = None) -> None:
        self.controller = Controller()
        self.replica = Replica(1, image(isr=(1,), replicas=(1, 2)), config=config)
        self.replica.partition.topic.isr_changes = IsrChanges(self.controller)
        self.replica.write()
        self.now_ms = 0.0

    def fetch(self, offset: int) -> None:
        self.now_ms += 1
        self.replica.partition.as_leader().record_fetch(2, offset, self.now_ms)
        self.controller.end_wake_up()

    def begin_to_wait(self) -> Waiter:
        """Let the follower fetch what there is while more is written."""
        self.replica.write()
        self.fetch(0)
        waiter = self.replica.write()
        assert waiter.told == [None]
        self.fetch(2)
        return self.replica.write()


def test_a_follower_joins_a_leader_that_commits_all_the_time() -> None:
    """With each fetch it has what was there at the one before, and more is committed by then."""
    case = LonelyLeader()
    waiter = case.begin_to_wait()
    assert waiter.told == []
    case.fetch(3)
    assert case.controller.proposals == [(1, 2)]
    assert waiter.told == []
    case.replica.take_role(image(isr=(1, 2), replicas=(1, 2)))
    case.fetch(4)
    assert waiter.told == [None]


def test_a_follower_that_is_waited_for_and_falls_behind_is_not_waited_for_any_more() -> None:
    case = LonelyLeader()
    waiter = case.begin_to_wait()
    case.fetch(2)
    assert waiter.told == [None]
    assert case.controller.proposals == []


def test_a_follower_that_does_not_fetch_again_is_waited_for_only_shortly() -> None:
    case = LonelyLeader()
    waiter = case.begin_to_wait()
    case.controller.run_timers()
    assert waiter.told == [None]


def test_a_follower_that_is_fenced_is_not_waited_for() -> None:
    case = LonelyLeader()
    waiter = case.begin_to_wait()
    case.controller.active.remove(2)
    leader = case.replica.partition.as_leader()
    assert leader.partition.topic.isr_changes is not None
    leader.partition.topic.isr_changes.consider_all(leader)
    assert waiter.told == [None]


def test_with_too_small_an_isr_a_follower_joins_only_if_it_keeps_up() -> None:
    """The high watermark stays where it is then: to have reached it says little."""
    case = LonelyLeader(LogConfig(min_insync_replicas=2))
    case.fetch(0)
    case.fetch(0)
    assert case.controller.proposals == []
    case.fetch(1)
    assert case.controller.proposals == [(1, 2)]


def test_with_too_small_an_isr_a_follower_that_has_everything_need_not_fetch_again() -> None:
    """It was fenced for a moment, and waits for records: none come while the ISR is too small."""
    case = LonelyLeader(LogConfig(min_insync_replicas=2))
    case.replica.take_role(image(isr=(1, 2), replicas=(1, 2)))
    case.fetch(1)
    case.replica.take_role(image(isr=(1,), replicas=(1, 2)))
    leader = case.replica.partition.as_leader()
    assert leader.partition.topic.isr_changes is not None
    leader.partition.topic.isr_changes.consider_all(leader)
    case.controller.end_wake_up()
    assert case.controller.proposals == [(1, 2)]


LAG_MAX_MS = 30_000.0


def test_only_partitions_that_were_written_to_are_checked_for_followers_that_lag() -> None:
    changes = IsrChanges(controller := Controller())
    replica = Replica(1, image(leader=2))
    replica.partition.topic.isr_changes = changes
    replica.take_role(image(leader_epoch=1))
    leader = replica.partition.as_leader()
    for follower in (2, 3):
        leader.record_fetch(follower, 0, 0.0)
    changes.remove_lagging(0.0, LAG_MAX_MS)
    assert not changes.to_check  # both have everything
    replica.write()
    leader.record_fetch(2, 1, 0.0)
    changes.remove_lagging(10.0, LAG_MAX_MS)
    assert list(changes.to_check) == [leader]
    changes.remove_lagging(replica.log.resources.clock.monotonic_ms() + 2 * LAG_MAX_MS, LAG_MAX_MS)
    controller.end_wake_up()
    assert controller.proposals == [(1, 2)]
    replica.take_role(image(isr=(1, 2), leader_epoch=1))
    changes.remove_lagging(10.0, LAG_MAX_MS)
    assert not changes.to_check


def test_a_replica_that_leads_no_more_is_not_checked() -> None:
    changes = IsrChanges(Controller())
    replica = Replica(1, image())
    replica.partition.topic.isr_changes = changes
    replica.write()
    assert list(changes.to_check) == [replica.partition.leader]
    replica.take_role(image(leader=2, leader_epoch=1))
    changes.remove_lagging(0.0, LAG_MAX_MS)
    assert not changes.to_check
