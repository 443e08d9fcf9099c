"""Random requests, failed writes, slow leaders, failovers and restarts: no decision is lost."""

from __future__ import annotations

from errno import ENOSPC

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinator.transactions.transaction_state import PREPARED
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from tests.support.transaction_coordinator import ID, Coordination, Leaders, Told

PARTITIONS = [("in", 0), ("in", 1), ("out", 0), ("out", 1), ("out", 2)]

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("init"), st.booleans()),
        st.tuples(st.just("add"), st.sampled_from(PARTITIONS)),
        st.tuples(st.just("end"), st.booleans()),
        st.tuples(st.just("end again"), st.booleans()),
        st.tuples(st.just("slow leaders"), st.booleans()),
        st.tuples(st.just("answer"), st.just(0)),
        st.tuples(st.just("refuse"), st.sampled_from(PARTITIONS)),
        st.tuples(st.just("heal"), st.just(0)),
        st.tuples(st.just("full disk"), st.just(0)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("failover"), st.just(0)),
        st.tuples(st.just("settle"), st.just(0)),
        st.tuples(st.just("pass"), st.sampled_from([1, 60, 1500, 75_000])),
    ),
    max_size=40,
)


class Client:
    """A producer that does what it is told to, and what it has been told."""

    def __init__(self, level: int) -> None:
        self.version = level
        self.coordination = Coordination(level)
        self.producer: tuple[int, int] | None = None
        self.last_ended: tuple[int, int] | None = None
        self.added: set[tuple[str, int]] = set()
        self.given: list[tuple[int, int]] = []
        self.decided: list[tuple[tuple[int, int], bool, frozenset[tuple[str, int]]]] = []
        self.written: list[tuple[str, int, int, int, bool]] = []
        self.unsettled: list[Told] = []

    def do(self, action: str, argument: object) -> None:
        coordination = self.coordination
        match action, argument:
            case "init", bool(goes_on):
                told = coordination.init(self.producer if goes_on else None)
                if told.is_told and told.code is ErrorCode.NONE:
                    self.producer, self.added = told.producer, set()
                    if not goes_on:
                        self.given.append(told.producer)
            case "add", (str(topic), int(index)):
                if self.producer is not None:
                    told = coordination.add(self.producer, (topic, index), version=self.version)
                    if told.is_told and told.code is ErrorCode.NONE:
                        self.added.add((topic, index))
            case "end", bool(committed):
                if self.producer is not None:
                    self._end(self.producer, committed)
            case "end again", bool(committed):
                if self.last_ended is not None:
                    coordination.end(self.last_ended, committed, version=self.version)
            case "slow leaders", bool(is_slow):
                coordination.leaders.is_slow = is_slow
            case "answer", _:
                coordination.leaders.answer()
            case "refuse", (str(topic), int(index)):
                coordination.leaders.codes[TopicPartition(topic, index)] = (
                    ErrorCode.NOT_LEADER_OR_FOLLOWER
                )
            case "heal", _:
                coordination.leaders.codes.clear()
            case "full disk", _:
                coordination.files.fail(
                    "write", OSError(ENOSPC, "full"), path="*__transaction*", times=1
                )
            case "restart", _:
                self._restart()
            case "failover", _:
                coordination.elect(coordination.node.node_id + 1)
                coordination.elect(coordination.node.node_id)
            case "settle", _:
                coordination.settle()
            case "pass", int(duration_ms):
                coordination.pass_ms(duration_ms, max(duration_ms // 100, 1))
        coordination.settle()
        self.written += coordination.markers()

    def _end(self, producer: tuple[int, int], committed: bool) -> None:
        told = self.coordination.end(producer, committed, version=self.version)
        if told.is_told and told.code is ErrorCode.NONE:
            self.decided.append((producer, committed, frozenset(self.added)))
            self.last_ended, self.producer, self.added = producer, told.producer, set()

    def _restart(self) -> None:
        coordination = self.coordination
        codes = coordination.leaders.codes
        self.written += coordination.markers()
        coordination.leaders = Leaders()
        coordination.leaders.codes = codes
        coordination.files.heal()
        coordination.restart()

    def quiesce(self) -> None:
        """Let all go well until nothing is left to do."""
        coordination = self.coordination
        coordination.files.heal()
        coordination.leaders.codes.clear()
        coordination.leaders.is_slow = False
        coordination.leaders.answer()
        coordination.pass_ms(3000, 10)
        self.written += coordination.markers()


@settings(max_examples=60, deadline=None)
@given(level=st.sampled_from([0, 1, 2]), steps=STEPS)
def test_a_decision_that_was_told_is_carried_out(
    level: int, steps: list[tuple[str, object]]
) -> None:
    client = Client(level)
    for action, argument in steps:
        client.do(action, argument)
    client.quiesce()

    shards = [each.shard for each in client.coordination.coordinator.host.runtimes.values()]
    assert not any(shard.prepared or shard.waiting for shard in shards)
    found = client.coordination.runtime.shard.transactions.get(ID)
    assert found is None or found.state not in PREPARED

    results: dict[tuple[int, int], set[bool]] = {}
    places: dict[tuple[int, int, bool], set[tuple[str, int]]] = {}
    for topic, index, producer_id, epoch, committed in client.written:
        results.setdefault((producer_id, epoch), set()).add(committed)
        places.setdefault((producer_id, epoch, committed), set()).add((topic, index))
    if level >= 2:  # an epoch has one transaction, and this one result
        assert all(len(each) == 1 for each in results.values())
    for (producer_id, epoch), committed, added in client.decided:
        marker_epoch = epoch + 1 if level >= 2 else epoch
        assert added <= places.get((producer_id, marker_epoch, committed), set())
    assert len(set(client.given)) == len(client.given), "an epoch is given to one producer"
