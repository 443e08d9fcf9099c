"""A whole quorum under a seeded network that loses, delays, repeats and reorders messages.

Nodes crash and come back with what was persisted and flushed; disks take their time. After
each effect the simulation checks what Raft promises:

- an epoch has one leader;
- what any node was told to be committed is the same everywhere, for ever;
- a new leader has everything that is committed.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import NamedTuple

from ottla.raft import effects as fx
from ottla.raft import events as ev
from ottla.raft import messages as msg
from ottla.raft.config import QuorumConfig
from ottla.raft.log_view import OffsetAndEpoch
from ottla.raft.voter_history import KraftVersionAt, VotersAt
from ottla.raft.voters import ReplicaKey, VoterSet
from tests.support.raft_cluster import Message, Node, Record, Snapshot, directory_id, voter

CLIENT = 0


class Broken(AssertionError):
    """A promise of Raft was broken."""


class Faults(NamedTuple):
    """How hostile the world is. Probabilities for each message or each client turn."""

    drop: float = 0.1
    duplicate: float = 0.05
    max_delay_ms: int = 40
    max_flush_ms: int = 30
    crash: float = 0.008
    partition: float = 0.02
    snapshot: float = 0.02
    resign: float = 0.005
    voter_change: float = 0.0


CONFIG = QuorumConfig(
    election_timeout_ms=200,
    election_backoff_max_ms=200,
    fetch_timeout_ms=400,
    request_timeout_ms=300,
    fetch_max_wait_ms=100,
)
USUAL = Faults()
CALM = Faults(0, 0, 5, 5, 0, 0, 0, 0, 0)


class Simulation:
    def __init__(
        self,
        seed: int,
        voters: int,
        observers: int = 0,
        dynamic: bool = False,
        faults: Faults = USUAL,
    ) -> None:
        self.random = random.Random(seed)
        self.faults = faults
        self.now_ms = 0.0
        self.leaders: dict[int, int] = {}
        self.committed: list[Record] = []
        self.snapshots: dict[OffsetAndEpoch, Snapshot] = {}
        self.nodes: dict[int, Node] = {}
        self.partition: set[int] = set()
        self.appended = 0
        self._queue: list[tuple[float, int, Callable[[], object]]] = []
        self._order = 0
        self._lives: dict[int, int] = {}
        self._make_nodes(voters, observers, dynamic)

    def _make_nodes(self, voters: int, observers: int, dynamic: bool) -> None:
        voter_set = VoterSet(
            voter(i, directory=directory_id(i) if dynamic else None) for i in range(1, voters + 1)
        )
        for node_id in range(1, voters + observers + 1):
            node = Node(
                voter(node_id, directory=directory_id(node_id) if dynamic else None),
                VoterSet() if dynamic else voter_set,
                self._send,
                self.random.randrange,
                CONFIG,
                bootstrap=tuple(
                    fx.Peer(v.key.id, v.endpoints) for v in voter_set.voters if v.key.id != node_id
                ),
            )
            if dynamic:
                control = (KraftVersionAt(-1, 1), VotersAt(-1, voter_set))
                node.log.snapshots[OffsetAndEpoch(0, 0)] = Snapshot(b"", control)
            node.snapshot_source = self.snapshots.__getitem__
            node.watch = self._watch
            self.nodes[node_id] = node
            self._lives[node_id] = 0
            self._start(node)

    # the world

    def _at(self, delay_ms: float, action: Callable[[], object]) -> None:
        self._order += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._order, action))

    def _in_life(self, node: Node, action: Callable[[], object]) -> Callable[[], None]:
        """Return the action for as long as the node does not crash."""
        life = self._lives[node.id]

        def act() -> None:
            if self._lives[node.id] == life and node.quorum is not None:
                action()
                self._after(node)

        return act

    def _after(self, node: Node) -> None:
        """Arrange for the flush that a step asked for."""
        if node.needs_flush:
            delay_ms = self.random.uniform(0, self.faults.max_flush_ms)
            node.needs_flush = False
            self._at(delay_ms, self._in_life(node, lambda: self._flush(node)))

    def _flush(self, node: Node) -> None:
        node.flush(self.now_ms)

    def _set_deadline(self, node: Node, at_ms: float) -> None:
        def tick() -> None:
            if node.deadline_ms == at_ms:
                node.step(ev.TimePassed(), self.now_ms)

        self._at(max(0.0, at_ms - self.now_ms), self._in_life(node, tick))

    def _start(self, node: Node) -> None:
        node.start(self.now_ms)
        self._after(node)

    def _crash(self, node: Node) -> None:
        self._lives[node.id] += 1
        node.crash()
        self._at(self.random.uniform(10, 1000), lambda: self._start(node))

    def _send(self, message: Message) -> None:
        """Bring a message over, or not, or twice. Answers belong to a life of the asker."""
        if message.receiver == CLIENT:
            return
        copies = 1 + (self.random.random() < self.faults.duplicate)
        if self.random.random() < self.faults.drop or self._is_cut(message):
            copies = 0
            if not message.is_response and self.random.random() < 0.5:
                self._fail(message)
        asker = self.nodes[message.receiver if message.is_response else message.sender]
        life = self._lives[asker.id]
        for _ in range(copies):
            delay_ms = self.random.uniform(0, self.faults.max_delay_ms)
            self._at(delay_ms, lambda: self._deliver(message, asker, life))

    def _fail(self, message: Message) -> None:
        node = self.nodes[message.sender]
        failed = ev.RequestFailed(message.request_id)
        self._at(1, self._in_life(node, lambda: node.step(failed, self.now_ms)))

    def _is_cut(self, message: Message) -> bool:
        return (message.sender in self.partition) != (message.receiver in self.partition)

    def _deliver(self, message: Message, asker: Node, life: int) -> None:
        receiver = self.nodes[message.receiver]
        if self._lives[asker.id] != life or self._is_cut(message):
            return
        if receiver.quorum is None:
            if not message.is_response and asker.quorum is not None:
                failed = ev.RequestFailed(message.request_id, ev.Failure.REFUSED)
                asker.step(failed, self.now_ms)
                self._after(asker)
            return
        receiver.receive(message, self.now_ms)
        self._after(receiver)

    # clients and faults

    def run(self, duration_ms: float, turn_ms: float = 50) -> None:
        """Let clients append and faults happen for so long."""
        end_ms = self.now_ms + duration_ms
        next_turn_ms = self.now_ms
        while self.now_ms < end_ms:
            next_turn_ms += self.random.uniform(0, 2 * turn_ms)
            while self._queue and self._queue[0][0] <= next_turn_ms:
                self.now_ms, _, action = heapq.heappop(self._queue)
                action()
            self.now_ms = max(self.now_ms, next_turn_ms)
            self._turn()

    def _turn(self) -> None:
        chance, faults = self.random.random, self.faults
        for node in self.nodes.values():
            if node.quorum is None:
                continue
            if node.quorum.is_leader and chance() < 0.7:
                self.append(node)
            if chance() < faults.crash:
                self._crash(node)
            elif chance() < faults.snapshot and node.committed > node.log.start_offset:
                snapshot_id = node.take_snapshot()
                self.snapshots[snapshot_id] = node.log.snapshots[snapshot_id]
                self._after(node)
            elif node.quorum.is_leader and chance() < faults.voter_change:
                self._change_voters(node)
            elif chance() < faults.resign:
                node.step(ev.Resign(node.quorum.election.epoch), self.now_ms)
                self._after(node)
        if chance() < faults.partition:
            ids = sorted(self.nodes)
            self.partition = set(self.random.sample(ids, self.random.randrange(len(ids) + 1)))
        elif chance() < 0.1:
            self.partition = set()

    def append(self, node: Node) -> None:
        """Append a batch of one or two records as the node's controller."""
        assert node.quorum is not None
        values = tuple(range(self.appended, self.appended + self.random.randint(1, 2)))
        self.appended += len(values)
        epoch = node.quorum.election.epoch
        node.step(ev.AppendRecords(epoch, values, len(values)), self.now_ms)
        self._after(node)

    def _change_voters(self, leader: Node) -> None:
        node_id = self.random.choice(sorted(self.nodes))
        key = ReplicaKey(node_id, directory_id(node_id))
        request: msg.AnyRequest = msg.RemoveVoterRequest(key)
        assert leader.quorum is not None
        if leader.quorum.voters.get(node_id) is None:
            endpoints = self.nodes[node_id].local.endpoints
            request = msg.AddVoterRequest(key, endpoints, 2000)
        leader.step(ev.Request((CLIENT, 0), request), self.now_ms)
        self._after(leader)

    def heal(self) -> None:
        """End all faults and start all nodes."""
        self.faults = CALM
        self.partition = set()

    def leader(self) -> Node | None:
        """Return the leader of the latest epoch."""
        leaders = [n for n in self.nodes.values() if n.quorum and n.quorum.is_leader]
        return max(leaders, key=lambda n: n.quorum.election.epoch if n.quorum else 0, default=None)

    # promises

    def _watch(self, node: Node, effect: fx.Effect) -> None:
        if isinstance(effect, fx.SetDeadline) and effect.at_ms is not None:
            self._set_deadline(node, effect.at_ms)
        self._check(node, effect)

    def _check(self, node: Node, effect: fx.Effect) -> None:
        if isinstance(effect, fx.RoleChanged) and effect.role == "leader":
            if self.leaders.setdefault(effect.epoch, node.id) != node.id:
                raise Broken(f"epoch {effect.epoch}: {node.id} and {self.leaders[effect.epoch]}")
            self._check_log(node, len(self.committed))
        elif isinstance(effect, fx.Committed):
            high_watermark = effect.high_watermark
            log = node.log
            for offset in range(len(self.committed), high_watermark):
                self.committed.append(log.records[offset - log.start_offset])
            self._check_log(node, high_watermark)

    def _check_log(self, node: Node, end_offset: int) -> None:
        """Check that the node has the committed records up to here."""
        log = node.log
        if log.end_offset < end_offset:
            raise Broken(f"{node.id} has {log.end_offset} of {end_offset} committed records")
        start = log.start_offset
        if log.records[: end_offset - start] != self.committed[start:end_offset]:
            raise Broken(f"{node.id} differs from what is committed below {end_offset}")
