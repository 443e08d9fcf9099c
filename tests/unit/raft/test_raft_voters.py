"""Voter sets, their history along the log, and the count of votes."""

from __future__ import annotations

from ottla.raft.election import Votes
from ottla.raft.voter_history import KraftVersionAt, VoterHistory, VotersAt
from ottla.raft.voters import ReplicaKey, Voter, VoterSet
from tests.support.raft_cluster import directory_id, voter


def keyed(node_id: int, disk: int = 0) -> Voter:
    return voter(node_id, directory=directory_id(node_id, disk))


def key(node_id: int, disk: int = 0) -> ReplicaKey:
    return ReplicaKey(node_id, directory_id(node_id, disk))


def test_a_voter_is_named_by_its_directory_too() -> None:
    voters = VoterSet([keyed(1), keyed(2)])
    assert voters.is_voter(key(1))
    assert not voters.is_voter(key(1, disk=1))
    assert not voters.is_voter(ReplicaKey(1))
    assert not voters.is_voter(key(3))


def test_a_static_voter_matches_any_directory() -> None:
    voters = VoterSet([voter(1)])
    assert voters.is_voter(ReplicaKey(1))
    assert voters.is_voter(key(1))
    assert voters.is_only_voter(key(1, disk=1))


def test_voters_are_added_removed_and_updated() -> None:
    voters = VoterSet([keyed(2), keyed(1)])
    assert voters.ids == (1, 2)
    assert voters.add(keyed(2, disk=1)) is None
    larger = voters.add(keyed(3))
    assert larger is not None
    assert larger.ids == (1, 2, 3)
    assert larger.remove(key(3, disk=1)) is None
    assert larger.remove(key(3)) == voters
    moved = keyed(2)._replace(endpoints=voter(2, port=9999).endpoints)
    assert voters.needs_update(moved)
    updated = voters.update(moved)
    assert updated is not None
    assert updated.endpoints(2)[0].port == 9999
    assert voters.update(keyed(2, disk=1)) is None


def test_the_last_voter_stays() -> None:
    assert VoterSet([keyed(1)]).remove(key(1)) is None


def test_history_follows_appends_truncations_and_trims() -> None:
    static = VoterSet([voter(1)])
    first, second = VoterSet([keyed(1)]), VoterSet([keyed(1), keyed(2)])
    history = VoterHistory(static)
    assert (history.last, history.last_offset, history.kraft_version) == (static, None, 0)
    history.add([KraftVersionAt(1, 1), VotersAt(2, first)])
    history.add([VotersAt(10, second)])
    assert (history.last, history.last_offset, history.kraft_version) == (second, 10, 1)
    history.truncate(10)
    assert (history.last, history.last_offset) == (first, 2)
    history.add([VotersAt(10, second)])
    history.trim(11)
    history.truncate(11)
    assert history.last == second
    history.replace([VotersAt(20, first)])
    assert (history.last, history.last_offset, history.kraft_version) == (first, 20, 0)


def test_a_removal_counts_as_open_until_it_is_committed() -> None:
    history = VoterHistory(VoterSet())
    history.add([VotersAt(2, VoterSet([keyed(1), keyed(2)])), VotersAt(9, VoterSet([keyed(2)]))])
    assert history.is_removed_after(key(1), 9)
    assert not history.is_removed_after(key(1), 10)
    assert not history.is_removed_after(key(2), 9)
    assert not history.is_removed_after(key(3), 9)


def test_votes_are_won_by_a_majority() -> None:
    votes = Votes(VoterSet([voter(1), voter(2), voter(3)]), ReplicaKey(1))
    assert (votes.is_won, votes.is_lost) == (False, False)
    votes.record(2, False)
    assert [k.id for k in votes.unanswered] == [3]
    assert not votes.is_lost
    votes.record(9, True)
    assert not votes.is_won
    votes.record(3, True)
    assert votes.is_won
    assert votes.granting == (1, 3)


def test_votes_are_lost_when_no_majority_is_left() -> None:
    votes = Votes(VoterSet([voter(1), voter(2), voter(3)]), ReplicaKey(1))
    votes.record(2, False)
    votes.record(3, False)
    assert votes.is_lost


def test_a_removed_voter_has_no_vote_of_its_own() -> None:
    votes = Votes(VoterSet([voter(2)]), ReplicaKey(1))
    assert not votes.is_won
    votes.record(2, True)
    assert votes.is_won
