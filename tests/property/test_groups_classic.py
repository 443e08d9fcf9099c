"""A classic group against a model: members come, go, die, commit; the broker fails and restarts.

Whatever happens:
- no partition has two owners in one generation;
- a commit from a generation older than one whose assignment was told is refused;
- an accepted commit is there until the next one, also after a crash at any point;
- a static member's former self is fenced;
- when the faults stop, everybody alive is in one generation that covers all partitions.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from ottla.coordinator.runtime.shard_runtime import RuntimeState
from ottla.model.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupResponse
from tests.support.groups import (
    DELAY_MS,
    PARTITIONS,
    REBALANCE_MS,
    SESSION_MS,
    TOPIC,
    Broker,
    Member,
    clean_groups,
    fetch,
)

NAMES = ("a", "b", "c", "d")
STATIC = ("c", "d")
RETRIED = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)

members = st.sampled_from(NAMES)
partitions = st.integers(0, PARTITIONS - 1)


class Consumer(Member):
    """A member that knows what it has to do next, as client libraries do."""

    def __init__(self, broker: Broker, name: str) -> None:
        super().__init__(broker, name, instance_id=f"i-{name}" if name in STATIC else None)
        self.owned: frozenset[int] = frozenset()
        self.is_fenced = False

    @property
    def identity(self) -> str:
        """Who it is: a static member stays the same under another member id."""
        return self.instance_id or self.member_id

    def failed(self, code: int) -> None:
        """Do what a client does about an error: keep its id and rejoin, or begin anew."""
        self.disconnected()
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self.is_fenced = True
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.generation_id = -1

    def disconnected(self) -> None:
        """Forget a request whose answer is lost: the client joins again."""
        if self.joining is not None or self.syncing is not None:
            self.generation_id = -1
        self.joining = self.syncing = None

    def start_anew(self) -> None:
        """Start the process of a fenced member again, which has ended with that error.

        As in Kafka, the new id of a static member is not written before its group is stable: if
        the coordinator restarts in between, the last bearer known to it fences the new one.
        """
        self.joining = self.syncing = None
        self.member_id, self.generation_id = "", -1
        self.owned = frozenset()
        self.is_fenced = False


class ClassicGroupMachine(RuleBasedStateMachine):
    @initialize(names=st.sets(members, min_size=1), ticks=st.integers(5, 25))
    def begin(self, names: set[str], ticks: int) -> None:
        self.broker = Broker(offsets_retention_check_interval_ms=str(2**40))
        self.alive: dict[str, Consumer] = {}
        self.former: list[Consumer] = []
        self.owners: dict[int, dict[int, str]] = {}
        self.newest_generation = 0
        self.offsets: dict[tuple[str, int], int] = {}
        self.next_offset = 1
        for name in sorted(names):
            self.join(name)
        self.work(ticks, set())

    # -- members -------------------------------------------------------------------------

    @rule(name=members)
    def join(self, name: str) -> None:
        """Come, or rejoin."""
        member = self.alive.setdefault(name, Consumer(self.broker, name))
        if member.is_parked or member.joining is not None or member.is_fenced:
            return
        member.syncing = None
        member.join()

    @rule(name=members)
    def go_on(self, name: str) -> None:
        """Take the answer that has come and do what it calls for."""
        member = self.alive.get(name)
        if member is None or member.is_parked:
            return
        if member.joining is not None:
            self.take_join(member)
        elif member.syncing is not None:
            self.take_sync(member)

    def take_join(self, member: Consumer) -> None:
        response = member.joined
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            member.member_id = response.member_id
        if response.error_code != ErrorCode.NONE:
            member.failed(response.error_code)
            return
        member.joining = None
        self.fence_former(member)
        assignments = {}
        if response.leader == response.member_id and not response.skip_assignment:
            ids = [other.member_id for other in response.members]
            assert member.member_id in ids
            assignments = {
                member_id: bytes(range(position, PARTITIONS, len(ids)))
                for position, member_id in enumerate(ids)
            }
        member.sync(assignments)

    def take_sync(self, member: Consumer) -> None:
        response = member.synced
        if response.error_code != ErrorCode.NONE:
            member.failed(response.error_code)
            return
        member.syncing = None
        member.owned = frozenset(response.assignment)
        self.newest_generation = max(self.newest_generation, member.generation_id)
        owners = self.owners.setdefault(member.generation_id, {})
        for partition in member.owned:
            assert owners.setdefault(partition, member.identity) == member.identity

    @rule(ticks=st.integers(1, 16), silent=st.sets(members, max_size=1))
    def work(self, ticks: int, silent: set[str]) -> None:
        """Let all members but the silent ones do what clients do by themselves."""
        for _ in range(ticks):
            self.broker.pass_ms(500)
            for name in list(self.alive):
                if name not in silent:
                    self.act(name)

    @rule(name=members)
    def heartbeat(self, name: str) -> None:
        member = self.alive.get(name)
        if member is None or member.is_parked or member.generation_id < 0:
            return
        code = member.heartbeat()
        assert code != ErrorCode.NONE or not member.is_fenced
        if code not in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS, *RETRIED):
            member.failed(code)

    @rule(name=members, partition=partitions)
    def commit(self, name: str, partition: int) -> None:
        member = self.alive.get(name)
        if member is None or member.is_parked or member.generation_id < 0:
            return
        self.try_commit(member, partition)

    def try_commit(self, member: Consumer, partition: int) -> ErrorCode:
        code = member.commit(self.next_offset, partition)
        if code == ErrorCode.NONE:
            assert member.generation_id >= self.newest_generation
            assert not member.is_fenced
            self.offsets[TOPIC, partition] = self.next_offset
        self.next_offset += 1
        return code

    @rule(name=members, partition=partitions)
    def commit_of_the_past(self, name: str, partition: int) -> None:
        """Send a commit that was on its way for too long."""
        member = self.alive.get(name)
        if member is not None and not member.is_parked and self.newest_generation > 0:
            code = member.commit(
                999, partition, generation_id_or_member_epoch=self.newest_generation - 1
            )
            assert code != ErrorCode.NONE

    @rule(name=members)
    def leave(self, name: str) -> None:
        member = self.alive.get(name)
        if member is not None and not member.is_parked and member.member_id:
            member.leave()
            self.forget(name)

    @rule(name=members)
    def die(self, name: str) -> None:
        """End the process of a member without a LeaveGroup."""
        if name in self.alive:
            member = self.alive[name]
            if member.client in self.broker.clients:
                member.client.hang_up()
            self.forget(name)

    @rule(name=st.sampled_from(STATIC))
    def start_twice(self, name: str) -> None:
        """Start another process with the same instance id, while the first still runs."""
        member = self.alive.pop(name, None)
        if member is not None:
            if member.generation_id >= 0 and not member.is_parked:
                self.former.append(member)
            self.join(name)
            self.go_on(name)

    def fence_former(self, member: Consumer) -> None:
        """Check that the former process is fenced once the new one has joined."""
        for former in [f for f in self.former if f.instance_id == member.instance_id]:
            self.former.remove(former)
            if former.client in self.broker.clients and former.member_id != member.member_id:
                code = self.try_commit(former, 0)
                assert code != ErrorCode.NONE

    def forget(self, name: str) -> None:
        del self.alive[name]

    # -- the broker ----------------------------------------------------------------------

    @rule(duration_ms=st.sampled_from((100, DELAY_MS, SESSION_MS // 2, SESSION_MS, REBALANCE_MS)))
    def pass_time(self, duration_ms: int) -> None:
        self.broker.pass_ms(duration_ms)

    @rule()
    def crash(self) -> None:
        self.broker.crash_and_restart()
        self.former.clear()
        for member in self.alive.values():
            member.client = self.broker.connect(member.name)
            member.disconnected()
        self.check_offsets()

    @rule(name=members, partition=partitions)
    def fill_the_disk(self, name: str, partition: int) -> None:
        """Fill the disk, so that a commit cannot be written, or what is written by then."""
        self.broker.files.fill("*.log")
        self.commit(name, partition)
        self.go_on(name)
        self.broker.files.heal()
        self.broker.pass_ms(1100)

    @rule()
    def clean_the_log(self) -> None:
        """Have the log cleaner remove everything that is not needed."""
        if self.broker.node.groups.runtimes[0].state is RuntimeState.ACTIVE:
            clean_groups(self.broker)

    @precondition(lambda self: bool(self.offsets))
    @rule()
    def check_offsets(self) -> None:
        assert fetch(self.broker.connect()) == self.offsets

    # -- in the end ----------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "broker"):
            return
        self.crash()
        for name in NAMES[:3]:
            self.alive.setdefault(name, Consumer(self.broker, name))
        self.alive.pop("d", None)
        for _ in range(200):
            for member in self.alive.values():
                if member.is_fenced:
                    member.start_anew()
            self.work(1, set())
            if self.has_settled():
                break
        assert self.has_settled(), {n: vars(m) for n, m in self.alive.items()}
        self.check_offsets()

    def act(self, name: str) -> None:
        """Do what a client does by itself."""
        member = self.alive[name]
        if member.is_parked or member.is_fenced:
            return
        if member.joining is not None or member.syncing is not None:
            self.go_on(name)
        elif member.generation_id < 0 or member.heartbeat() != ErrorCode.NONE:
            member.owned = frozenset()
            code = member.heartbeat() if member.generation_id >= 0 else ErrorCode.NONE
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                member.failed(code)
            self.join(name)

    def has_settled(self) -> bool:
        alive = self.alive.values()
        generations = {member.generation_id for member in alive}
        owned = sorted(partition for member in alive for partition in member.owned)
        return (
            len(generations) == 1
            and owned == list(range(PARTITIONS))
            and all(not m.is_parked and m.joining is None and m.syncing is None for m in alive)
            and all(member.heartbeat() == ErrorCode.NONE for member in alive)
        )


TestClassicGroup = ClassicGroupMachine.TestCase
TestClassicGroup.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)


@pytest.mark.slow
@pytest.mark.timeout(400)
class TestClassicGroupAtLength(ClassicGroupMachine.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(max_examples=500, stateful_step_count=80, deadline=None)


def test_the_machine_sees_the_first_answer() -> None:
    """A member without an id is told one: what the machine builds on."""
    member = Consumer(Broker(), "a")
    response = member.send_join().of(JoinGroupResponse)
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
