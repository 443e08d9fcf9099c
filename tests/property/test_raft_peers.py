"""One node among peers that say anything which a real peer could say, in any order.

The peers agree on who leads an epoch (2 in even ones, 3 in odd ones, unless node 1 leads), and
send only records and truncations that a leader of that epoch could send. All else is random.
Checked: the epoch never goes back, an epoch is led once, and a vote is given once an epoch and
is on disk before the reply. The state machine itself asserts the rest.
"""

from __future__ import annotations

import random

import pytest

from ottla.model.errors import ErrorCode
from ottla.raft import effects as fx
from ottla.raft import events as ev
from ottla.raft import messages as msg
from ottla.raft.log_view import OffsetAndEpoch
from ottla.raft.voters import ReplicaKey, VoterSet
from tests.support.raft_cluster import Message, Node, Record, voter

STEPS = 400
ERRORS = [
    ErrorCode.NONE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_VOTER_KEY,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.SNAPSHOT_NOT_FOUND,
]


class Peers:
    """Node 1, and what its peers send it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0.0
        self.sent: list[Message] = []
        self.votes: dict[int, ReplicaKey] = {}
        self.led: set[int] = set()
        self.epoch = 0
        voters = VoterSet(voter(node_id) for node_id in (1, 2, 3))
        self.node = Node(voter(1), voters, self.sent.append, self.random.randrange)
        self.node.watch = self._check
        self.node.start(0)

    def step(self) -> None:
        """Let one random thing happen."""
        choices = [self._time, self._request, self._answer, self._answer, self._flush, self._crash]
        weights = [6, 8, 8, 8, 6, 0.3]
        self.random.choices(choices, weights)[0]()

    def _leader(self, epoch: int) -> int:
        return 1 if epoch in self.led else 2 + epoch % 2

    def _time(self) -> None:
        self.now_ms += self.random.choice([0, 1, 30, 300, 1500])
        self.node.step(ev.TimePassed(), self.now_ms)
        quorum = self.node.quorum
        assert quorum is not None
        if quorum.is_leader and self.random.random() < 0.3:
            append = ev.AppendRecords(quorum.election.epoch, ("a", "b"), 2)
            self.node.step(append, self.now_ms)
        elif self.random.random() < 0.05:
            self.node.step(ev.Resign(quorum.election.epoch), self.now_ms)

    def _flush(self) -> None:
        if self.node.needs_flush:
            self.node.flush(self.now_ms)

    def _crash(self) -> None:
        self.sent.clear()
        self.node.crash()
        self.node.start(self.now_ms)

    def _request(self) -> None:
        peer = self.random.choice([2, 3])
        epoch = max(0, self.epoch + self.random.choice([-1, 0, 0, 0, 1]))
        leader = self._leader(epoch)
        end = self.random.randrange(6)
        last_epoch = self.random.randrange(epoch + 2)
        key = ReplicaKey(peer)
        requests: list[msg.AnyRequest] = [
            msg.VoteRequest(key, epoch, None, end, last_epoch, self.random.random() < 0.5),
            msg.FetchRequest(key, epoch, end, last_epoch, None, 500, 1000),
            msg.FetchSnapshotRequest(key, epoch, OffsetAndEpoch(end, last_epoch), 0, 100),
            msg.RemoveVoterRequest(key),
            msg.UpdateVoterRequest(key, epoch, voter(peer).endpoints, 0, 1),
        ]
        if leader != 1:
            endpoints = voter(leader).endpoints
            requests += [
                msg.BeginQuorumEpochRequest(leader, epoch, endpoints, None),
                msg.EndQuorumEpochRequest(leader, epoch, endpoints, (ReplicaKey(1),)),
            ]
        message = Message(peer, 1, 0, self.random.choice(requests))
        self.node.receive(message, self.now_ms)

    def _answer(self) -> None:
        if not self.sent:
            return
        sent = self.sent.pop(self.random.randrange(len(self.sent)))
        if sent.is_response:
            return
        if self.random.random() < 0.1:
            self.node.step(ev.RequestFailed(sent.request_id), self.now_ms)
            return
        self.node.receive(
            Message(sent.receiver, 1, sent.request_id, self._response(sent), True), self.now_ms
        )

    def _response(self, sent: Message) -> msg.AnyResponse:
        body = sent.body
        epoch = max(0, self.epoch + self.random.choice([-1, 0, 0, 0, 0, 1]))
        leader: int | None = self._leader(epoch)
        error = self.random.choice([ErrorCode.NONE, ErrorCode.NONE, *ERRORS])
        if self.random.random() < 0.3:
            leader = None
        endpoints = voter(leader).endpoints if leader else ()
        if isinstance(body, msg.VoteRequest):
            granted = error == ErrorCode.NONE and leader != 1 and self.random.random() < 0.6
            if granted and not body.pre_vote and epoch == body.epoch:
                leader, endpoints = None, ()
            return msg.VoteResponse(error, epoch, leader, endpoints, granted)
        if isinstance(body, msg.BeginQuorumEpochRequest):
            return msg.BeginQuorumEpochResponse(error, epoch, leader, endpoints)
        if isinstance(body, msg.EndQuorumEpochRequest):
            return msg.EndQuorumEpochResponse(error, epoch, leader, endpoints)
        assert isinstance(body, msg.FetchRequest)
        if error == ErrorCode.NONE and sent.receiver != self._leader(body.epoch):
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return self._fetch_response(body, error, epoch, leader)

    def _fetch_response(
        self, body: msg.FetchRequest, error: ErrorCode, epoch: int, leader: int | None
    ) -> msg.FetchResponse:
        endpoints = voter(leader).endpoints if leader else ()
        if error != ErrorCode.NONE:
            return msg.FetchResponse(error, epoch, leader, endpoints)
        leader = self._leader(body.epoch)
        response = msg.FetchResponse(error, body.epoch, leader, voter(leader).endpoints)
        committed = self.node.committed
        end_offset = self.node.log.end_offset_for_epoch(body.last_fetched_epoch).offset
        if end_offset > committed and self.random.random() < 0.2:
            offset = self.random.randrange(committed, end_offset)
            log_epoch = self.node.log.records[offset - 1].epoch if offset else 0
            return response._replace(diverging=OffsetAndEpoch(offset, log_epoch))
        if self.random.random() < 0.5:
            records = (Record(body.epoch, "x"),) * self.random.randint(1, 2)
            response = response._replace(records=(body.fetch_offset, records))
        return response._replace(high_watermark=self.random.randrange(body.fetch_offset + 1))

    def _check(self, node: Node, effect: fx.Effect) -> None:
        if isinstance(effect, fx.Persist):
            election = effect.election
            assert election.epoch >= self.epoch
            self.epoch = election.epoch
            if election.voted is not None:
                assert self.votes.setdefault(election.epoch, election.voted) == election.voted
        elif isinstance(effect, fx.RoleChanged) and effect.role == "leader":
            assert effect.epoch not in self.led
            self.led.add(effect.epoch)
        elif isinstance(effect, fx.Reply) and isinstance(effect.message, msg.VoteResponse):
            assert effect.message.epoch == self.epoch


@pytest.mark.parametrize("seed", range(40))
def test_any_order_of_messages(seed: int) -> None:
    peers = Peers(seed)
    for _ in range(STEPS):
        peers.step()
