"""What transcripts do not show well: refusals, invariants, the description."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

from ottla.model.errors import ApiError, ErrorCode
from ottla.raft import effects as fx
from ottla.raft import events as ev
from ottla.raft import messages as msg
from ottla.raft.election import ElectionState
from ottla.raft.fetch_requests import MOST_WAIT_MS
from ottla.raft.quorum import Quorum
from ottla.raft.quorum_state import TRANSITIONS
from ottla.raft.replicas import MOST_OBSERVERS
from ottla.raft.requests import MOST_EPOCHS_AHEAD
from ottla.raft.voters import ReplicaKey, VoterSet
from tests.support.raft_cluster import MemoryLog, Record, voter


def start(*voter_ids: int, election: ElectionState | None = None) -> tuple[Quorum, MemoryLog]:
    log = MemoryLog()
    quorum = Quorum(voter(1), log, lambda limit: 0)
    voters = VoterSet(voter(voter_id) for voter_id in voter_ids)
    quorum.step(ev.Start(election, voters), 0)
    return quorum, log


def test_a_quorum_of_one_loads_nothing_for_peers() -> None:
    """A single broker pays for these modules at every start, so it must not need them."""
    script = """
import sys
from collections.abc import Sequence
from ottla.raft.events import AppendRecords, LogFlushed, Start
from ottla.raft.quorum import Quorum
from ottla.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet

class Log:
    start_offset = end_offset = end_epoch = 0
    earliest_snapshot = latest_snapshot = None

log = Log()
local = Voter(ReplicaKey(1), (Endpoint("CONTROLLER", "localhost", 9093),))
quorum = Quorum(local, log, lambda limit: 0)
quorum.step(Start(None, VoterSet([local])), 0)
log.end_offset = 1
quorum.step(LogFlushed(1), 0)
quorum.step(AppendRecords(1, b"", 1), 0)
log.end_offset = 2
quorum.step(LogFlushed(2), 0)
assert quorum.high_watermark == 2
print(*sorted(m for m in sys.modules if m.startswith("ottla.raft.")))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    loaded = {name.removeprefix("ottla.raft.") for name in done.stdout.split()}
    peers_only = {"messages", "requests", "responses", "follower", "resigned", "voter_changes"}
    assert loaded
    assert not loaded & {*peers_only, "fetch_requests", "description", "quorum_state_file"}


def test_every_role_has_its_transitions() -> None:
    roles = {"unattached", "prospective", "candidate", "leader", "follower", "resigned"}
    assert set(TRANSITIONS) == roles
    assert {role for targets in TRANSITIONS.values() for role in targets} == roles


def test_an_append_to_an_old_epoch_is_refused() -> None:
    quorum, _ = start(1)
    assert quorum.is_leader
    with pytest.raises(ApiError) as error:
        quorum.step(ev.AppendRecords(0, b"", 1), 0)
    assert error.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_quorum_of_one_counts_only_what_is_flushed() -> None:
    quorum, log = start(1)
    log.records += [Record(1, "leader"), Record(1, "a")]
    quorum.step(ev.AppendRecords(1, ("a",), 1), 0)
    assert quorum.step(ev.LogFlushed(1), 0) == [fx.Committed(1)]
    assert quorum.step(ev.LogFlushed(2), 0) == [fx.Committed(2)]
    assert quorum.high_watermark == 2


@pytest.mark.parametrize(
    "claim",
    [
        msg.BeginQuorumEpochRequest(3, 4, voter(3).endpoints, None),
        msg.EndQuorumEpochRequest(3, 4, voter(3).endpoints, ()),
    ],
)
def test_a_request_of_a_second_leader_of_an_epoch_is_refused(claim: msg.AnyRequest) -> None:
    quorum, _ = start(1, 2, 3, election=ElectionState(4, 2))
    (reply,) = replies(quorum.step(ev.Request(1, claim), 1))
    assert reply.error == ErrorCode.INVALID_REQUEST
    assert quorum.election == ElectionState(4, 2)


@pytest.mark.parametrize(
    "claim",
    [
        msg.VoteRequest(ReplicaKey(3), 2**31 - 1, None, 0, 0, False),
        msg.BeginQuorumEpochRequest(3, 2**31 - 1, voter(3).endpoints, None),
        msg.EndQuorumEpochRequest(3, 2**31 - 1, voter(3).endpoints, ()),
    ],
)
def test_an_epoch_after_which_nobody_could_be_elected_is_refused(claim: msg.AnyRequest) -> None:
    quorum, _ = start(1, 2, 3, election=ElectionState(4, 2))
    (reply,) = replies(quorum.step(ev.Request(1, claim), 1))
    assert reply.error == ErrorCode.INVALID_REQUEST
    assert quorum.election == ElectionState(4, 2)


@pytest.mark.parametrize("epoch", [2**30, 2**31 - 200])
def test_several_requests_cannot_lead_to_the_last_epoch_either(epoch: int) -> None:
    quorum, _ = start(1, 2, 3, election=ElectionState(epoch, 2))
    ahead = [1000, MOST_EPOCHS_AHEAD + 1, MOST_EPOCHS_AHEAD]
    for number, step in enumerate(ahead):
        claim = msg.VoteRequest(ReplicaKey(3), epoch + step, None, 0, 0, False)
        (reply,) = replies(quorum.step(ev.Request(number, claim), 1))
        assert (reply.error == ErrorCode.INVALID_REQUEST) == (step > MOST_EPOCHS_AHEAD)
    assert quorum.election.epoch == epoch + MOST_EPOCHS_AHEAD


def test_fetches_that_wait_are_bounded_in_number_and_time() -> None:
    quorum, log = start(1)
    log.records.append(Record(1, "leader"))
    quorum.step(ev.LogFlushed(1), 0)
    answered: set[object] = set()
    for number in range(3 * MOST_OBSERVERS):
        replica = ReplicaKey(1000, number.to_bytes(16))
        fetch = msg.FetchRequest(replica, 1, 1, 1, 1, 2**31 - 1, 1000)
        for effect in quorum.step(ev.Request(number, fetch), 1):
            if isinstance(effect, fx.ReplyWithRecords):
                answered.add(effect.request_id)
    assert answered == set(range(2 * MOST_OBSERVERS))
    late = quorum.step(ev.TimePassed(), 1 + MOST_WAIT_MS)
    assert len([each for each in late if isinstance(each, fx.ReplyWithRecords)]) == MOST_OBSERVERS


def replies(effects: Sequence[object]) -> list[msg.AnyResponse]:
    return [effect.message for effect in effects if isinstance(effect, fx.Reply)]


def test_a_log_ahead_of_the_election_state_counts() -> None:
    log = MemoryLog()
    log.records.append(Record(7, "a"))
    quorum = Quorum(voter(1), log, lambda limit: 0)
    effects = quorum.step(ev.Start(ElectionState(3, 2), VoterSet([voter(1), voter(2)])), 0)
    assert effects[0] == fx.Persist(ElectionState(7))


def test_a_candidate_goes_on_after_a_restart() -> None:
    quorum, _ = start(1, 2, election=ElectionState(3, None, ReplicaKey(1)))
    assert (quorum.role, quorum.election.epoch) == ("candidate", 3)


def test_a_peer_without_pre_votes_makes_a_candidate() -> None:
    quorum, _ = start(1, 2, 3)
    effects = quorum.step(ev.TimePassed(), 1000)
    sent = next(e for e in effects if isinstance(e, fx.Send))
    assert quorum.role == "prospective"
    unsupported = msg.VoteResponse(ErrorCode.UNSUPPORTED_VERSION, 0, None, ())
    quorum.step(ev.Response(sent.request_id, unsupported), 1001)
    assert quorum.role == "candidate"


def test_answers_to_unknown_requests_are_ignored() -> None:
    quorum, _ = start(1, 2, 3)
    granted = msg.VoteResponse(ErrorCode.NONE, 9, 2, voter(2).endpoints, True)
    assert quorum.step(ev.Response(999, granted), 1) == []
    assert quorum.election.epoch == 0


def test_only_the_leader_describes_the_quorum() -> None:
    follower, _ = start(1, 2, election=ElectionState(1, 2))
    assert follower.describe(0) is None
    leader, _ = start(1)
    described = leader.describe(5)
    assert described is not None
    assert (described.leader_id, described.leader_epoch, described.high_watermark) == (1, 1, None)
    assert [(r.key.id, r.last_fetch_ms) for r in described.voters] == [(1, 5)]
    assert described.endpoints == {1: voter(1).endpoints}
