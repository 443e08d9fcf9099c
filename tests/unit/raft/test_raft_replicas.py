"""What a leader remembers about replicas is bounded, whoever claims to be one."""

from __future__ import annotations

from ottla.raft import effects as fx
from ottla.raft import events as ev
from ottla.raft import messages as msg
from ottla.raft.quorum import Quorum
from ottla.raft.replicas import MOST_OBSERVERS, OBSERVER_SESSION_TIMEOUT_MS, Replicas
from ottla.raft.voters import ReplicaKey, VoterSet
from tests.support.raft_cluster import MemoryLog, Record, voter
from tests.support.request_cost import count_calls

VOTER = 1
FIRST = 100


def fetch(replicas: Replicas, replica_id: int, now_ms: float) -> None:
    replicas.observer(ReplicaKey(replica_id), now_ms).fetched(0, 0, now_ms)


def ids(replicas: Replicas) -> list[int]:
    return [key.id for key in replicas.observers]


def test_of_too_many_observers_those_that_fetched_last_are_known() -> None:
    replicas = Replicas(VoterSet([voter(VOTER)]))
    for number in range(MOST_OBSERVERS):
        fetch(replicas, FIRST + number, number)
    fetch(replicas, FIRST, MOST_OBSERVERS)  # the first one again
    fetch(replicas, 1, MOST_OBSERVERS + 1)
    assert len(replicas.observers) == MOST_OBSERVERS
    assert ids(replicas)[-2:] == [FIRST, 1]
    assert FIRST + 1 not in ids(replicas)


def test_a_new_observer_costs_the_same_however_many_there_are() -> None:
    replicas = Replicas(VoterSet([voter(VOTER)]))
    few = count_calls(lambda: fetch(replicas, FIRST, 1))
    for number in range(2 * MOST_OBSERVERS):
        fetch(replicas, FIRST + number, 2)
    assert count_calls(lambda: fetch(replicas, 1, 3)) <= few + 20


def test_observers_that_stopped_fetching_are_forgotten() -> None:
    replicas = Replicas(VoterSet([voter(VOTER)]))
    fetch(replicas, FIRST, 1)
    fetch(replicas, FIRST + 1, 100)
    fetch(replicas, FIRST + 2, OBSERVER_SESSION_TIMEOUT_MS + 50)
    assert ids(replicas) == [FIRST + 1, FIRST + 2]


def test_two_fetches_of_one_replica_are_both_answered() -> None:
    log = MemoryLog()
    quorum = Quorum(voter(VOTER), log, lambda limit: 0)
    quorum.step(ev.Start(None, VoterSet([voter(VOTER)])), 0)
    epoch = quorum.election.epoch
    log.records.append(Record(epoch, "a"))  # what the new leader has written
    quorum.step(ev.LogFlushed(1), 0)
    fetches = msg.FetchRequest(ReplicaKey(FIRST), epoch, 1, epoch, 1, 500, 1000)
    assert not answered(quorum.step(ev.Request("first", fetches), 1))
    assert answered(quorum.step(ev.Request("second", fetches), 2)) == ["first"]
    assert answered(quorum.step(ev.TimePassed(), 600)) == ["second"]


def answered(effects: object) -> list[object]:
    assert isinstance(effects, list | tuple)
    return [each.request_id for each in effects if isinstance(each, fx.ReplyWithRecords)]
