"""Runs a transcript: commands to a small cluster, and the effects that they print.

The commands are methods of `Transcript` that begin with `do_`. Time moves only by `wait` and
`tick`. Messages wait in a queue until they are delivered; flushes wait as well. Random numbers
are the node's id times 100, so node 1 loses patience first.
"""

from __future__ import annotations

import re

from ottla.model.errors import ApiError
from ottla.raft import effects as fx
from ottla.raft import events as ev
from ottla.raft import messages as msg
from ottla.raft.config import QuorumConfig
from ottla.raft.log_view import OffsetAndEpoch
from ottla.raft.voters import ReplicaKey, Voter, VoterSet
from tests.support.raft_cluster import (
    MemoryLog,
    Message,
    Node,
    Record,
    Snapshot,
    directory_id,
    voter,
)

CLIENT = 0
MAX_STEPS = 500


def run(text: str) -> str:
    """Return the transcript with what its commands print now."""
    transcript = Transcript()
    blocks = []
    for block in re.split(r"\n\n+", text.strip("\n")):
        commands = block.split("\n----")[0]
        lines = [line for line in commands.split("\n") if not line.startswith("#")]
        if not lines:
            blocks.append(block)
            continue
        transcript.output.clear()
        for line in lines:
            transcript.do(line)
        blocks.append("\n".join([commands, "----", *transcript.output]))
    return "\n\n".join(blocks) + "\n"


class Transcript:
    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.queue: list[Message] = []
        self.cut: set[int] = set()
        self.now_ms = 0
        self.output: list[str] = []
        self.is_quiet = False
        self.client_requests = 0
        self._config = QuorumConfig()
        self.last_requests: dict[str, int] = {}

    def do(self, line: str) -> None:
        """Run a command; `quietly` before it keeps its effects out of the transcript."""
        name, *words = line.split()
        self.is_quiet = name == "quietly"
        if self.is_quiet:
            name, *words = words
        options = dict(word.split("=", 1) for word in words if "=" in word)
        args = [word for word in words if "=" not in word]
        getattr(self, "do_" + name.replace("-", "_"))(*args, **options)

    # the cluster

    def do_nodes(
        self,
        *ids: str,
        observers: str = "",
        directories: str = "no",
        kraft: str = "0",
        first_election: str = "0",
    ) -> None:
        """Make nodes: voters, and observers=4,5. kraft=1 puts the voters into the log.

        first_election=50 gives them short election timeouts after their start.
        """
        self._config = QuorumConfig(first_election_ms=int(first_election))
        dynamic = kraft == "1"
        with_ids = dynamic or directories == "yes"
        voters = VoterSet(self._voter(int(i), with_ids) for i in ids)
        others = [int(i) for i in observers.split(",") if i]
        for node_id in [*map(int, ids), *others]:
            self._make(node_id, with_ids, voters, dynamic)

    def _make(self, node_id: int, with_directory: bool, voters: VoterSet, dynamic: bool) -> None:
        node = Node(
            self._voter(node_id, with_directory),
            VoterSet() if dynamic else voters,
            self._send,
            lambda limit: min(node_id * 100, limit - 1),
            self._config,
            bootstrap=tuple(fx.Peer(v.key.id, v.endpoints) for v in voters.voters)
            if dynamic
            else (),
        )
        if dynamic:
            from ottla.raft.voter_history import KraftVersionAt, VotersAt

            control = (KraftVersionAt(-1, 1), VotersAt(-1, voters))
            node.log.snapshots[OffsetAndEpoch(0, 0)] = Snapshot(b"", control)
        node.snapshot_source = self._snapshot
        self.nodes[node_id] = node

    def _voter(self, node_id: int, with_directory: bool) -> Voter:
        return voter(node_id, directory=directory_id(node_id) if with_directory else None)

    def _snapshot(self, snapshot_id: OffsetAndEpoch) -> Snapshot:
        for node in self.nodes.values():
            if snapshot_id in node.log.snapshots:
                return node.log.snapshots[snapshot_id]
        raise AssertionError(snapshot_id)

    def _send(self, message: Message) -> None:
        if not message.is_response:
            self.last_requests[f"{message.sender}->{message.receiver}"] = message.request_id
        if message.receiver == CLIENT or not {message.sender, message.receiver} & self.cut:
            self.queue.append(message)

    def do_start(self, *ids: str) -> None:
        for node_id in ids:
            node = self.nodes[int(node_id)]
            self._print(node, node.start(self.now_ms))

    def do_crash(self, node_id: str) -> None:
        """Lose what is neither persisted nor flushed, and the messages on their way."""
        self.nodes[int(node_id)].crash()
        self.queue = [m for m in self.queue if int(node_id) not in (m.sender, m.receiver)]

    def do_lose_disk(self, node_id: str) -> None:
        """Crash, and start later with an empty disk."""
        self.do_crash(node_id)
        node = self.nodes[int(node_id)]
        node.log, node.election = MemoryLog(), None

    def do_cut(self, node_id: str) -> None:
        """Cut a node off the others."""
        self.cut.add(int(node_id))
        self.queue = [m for m in self.queue if int(node_id) not in (m.sender, m.receiver)]

    def do_heal(self, node_id: str) -> None:
        self.cut.discard(int(node_id))

    def do_port(self, node_id: str, port: str) -> None:
        """Let a node that is down listen elsewhere."""
        node = self.nodes[int(node_id)]
        endpoint = node.local.endpoints[0]._replace(port=int(port))
        node.local = node.local._replace(endpoints=(endpoint,))

    # time and messages

    def do_wait(self, time_ms: str) -> None:
        self.now_ms += int(time_ms)

    def do_tick(self, *ids: str) -> None:
        """Let the time of each node's deadline come."""
        for node_id in ids:
            node = self.nodes[int(node_id)]
            assert node.deadline_ms is not None
            self.now_ms = max(self.now_ms, int(node.deadline_ms))
            self._print(node, node.step(ev.TimePassed(), self.now_ms))

    def do_timeout(self, node_id: str) -> None:
        """Let so much time pass, without any messages, that the node changes its role."""
        node = self.nodes[int(node_id)]
        assert node.quorum is not None
        role = node.quorum.role
        self.queue.clear()
        while node.quorum.role == role:
            self.queue = [m for m in self.queue if m.sender != node.id]
            assert node.deadline_ms is not None
            self.now_ms = max(self.now_ms, int(node.deadline_ms))
            effects = node.step(ev.TimePassed(), self.now_ms)
        self._print(node, effects)

    def do_flush(self, *ids: str) -> None:
        for node_id in ids:
            node = self.nodes[int(node_id)]
            self._print(node, node.flush(self.now_ms))

    def do_deliver(self, *routes: str) -> None:
        """Deliver the next message of each route, as 1->2; without any, all that wait now."""
        for step in routes or list(self.queue):
            message = self._find(step) if isinstance(step, str) else step
            self.queue.remove(message)
            self._deliver(message)

    def do_refuse(self, *routes: str) -> None:
        """Let the next message of each route find that nobody listens."""
        for route in routes:
            self.queue.remove(self._find(route))
            self._fail(route, ev.Failure.REFUSED)

    def do_close(self, *routes: str) -> None:
        """Let the last request of each route lose its connection before it is answered."""
        for route in routes:
            self._fail(route, ev.Failure.CLOSED)

    def _fail(self, route: str, failure: ev.Failure) -> None:
        self._say(f"{route} {failure.value}")
        node = self.nodes[int(route.split("->", maxsplit=1)[0])]
        failed = ev.RequestFailed(self.last_requests[route], failure)
        self._print(node, node.step(failed, self.now_ms))

    def do_drop(self, *routes: str) -> None:
        """Lose the next message of each route, or all."""
        if routes == ("all",):
            self.queue.clear()
        else:
            for route in routes:
                self.queue.remove(self._find(route))

    def do_duplicate(self, route: str) -> None:
        self.queue.append(self._find(route))

    def _find(self, route: str) -> Message:
        sender, receiver = map(int, route.split("->"))
        return next(m for m in self.queue if (m.sender, m.receiver) == (sender, receiver))

    def _deliver(self, message: Message) -> None:
        self._say(f"{message.sender}->{message.receiver} {show_message(message.body)}")
        node = self.nodes.get(message.receiver)
        if node is not None and node.quorum is not None:
            self._print(node, node.receive(message, self.now_ms))

    def do_settle(self) -> None:
        """Deliver and flush until nothing is left to do."""
        for _ in range(MAX_STEPS):
            if self.queue:
                self._deliver(self.queue.pop(0))
            elif flushing := [n for n in self.nodes.values() if n.needs_flush]:
                self._print(flushing[0], flushing[0].flush(self.now_ms))
            else:
                break
        else:
            raise AssertionError("the cluster does not settle")

    def do_run(self, time_ms: str) -> None:
        """Let this time pass with everything delivered and flushed at once."""
        end_ms = self.now_ms + int(time_ms)
        while True:
            self.do_settle()
            waiting = [n for n in self.nodes.values() if n.quorum and n.deadline_ms is not None]
            node = min(waiting, key=lambda n: n.deadline_ms or 0, default=None)
            if node is None or (node.deadline_ms or 0) > end_ms:
                break
            self.do_tick(str(node.id))
        self.now_ms = end_ms

    def do_elect(self, node_id: str) -> None:
        """Start all nodes and let this one win the first election; print nothing of it."""
        self.is_quiet = True
        self.do_start(*(str(i) for i, node in self.nodes.items() if node.quorum is None))
        self.do_timeout(node_id)
        self.do_settle()

    # what the local node is asked

    def do_append(self, node_id: str, *values: str) -> None:
        node = self.nodes[int(node_id)]
        assert node.quorum is not None
        append = ev.AppendRecords(node.quorum.election.epoch, values, len(values))
        try:
            self._print(node, node.step(append, self.now_ms))
        except ApiError as error:
            self._say(f"{node.id}  refused: {error}")

    def do_resign(self, node_id: str, epoch: str) -> None:
        node = self.nodes[int(node_id)]
        self._print(node, node.step(ev.Resign(int(epoch)), self.now_ms))

    def do_shutdown(self, node_id: str) -> None:
        node = self.nodes[int(node_id)]
        self._print(node, node.step(ev.ShutDown(), self.now_ms))

    def do_snapshot(self, node_id: str) -> None:
        """Take a snapshot of all that is committed, and trim the log to it."""
        self._say(f"snapshot {show_end(self.nodes[int(node_id)].take_snapshot())}")

    # what a client or a foreign node asks

    def do_vote(
        self, node_id: str, pre: str = "", *, candidate: str, epoch: str, end: str, to: str = ""
    ) -> None:
        """Ask node N for a (pre-)vote; end=offset/epoch of the candidate's log."""
        last_offset, last_epoch = map(int, end.split("/"))
        to_key = self._key(to) if to else None
        request = msg.VoteRequest(
            self._key(candidate), int(epoch), to_key, last_offset, last_epoch, pre == "pre"
        )
        self._ask(node_id, request)

    def do_begin(self, node_id: str, *, leader: str, epoch: str) -> None:
        endpoints = self._voter(int(leader), False).endpoints
        request = msg.BeginQuorumEpochRequest(int(leader), int(epoch), endpoints, None)
        self._ask(node_id, request)

    def do_fetch(self, node_id: str, *, replica: str, epoch: str, end: str) -> None:
        offset, last_epoch = map(int, end.split("/"))
        key = self._key(replica)
        request = msg.FetchRequest(key, int(epoch), offset, last_epoch, None, 500, 1000)
        self._ask(node_id, request)

    def do_add_voter(self, node_id: str, *, voter: str, timeout: str = "2000") -> None:
        endpoints = self._voter(int(voter), True).endpoints
        key = ReplicaKey(int(voter), directory_id(int(voter)))
        self._ask(node_id, msg.AddVoterRequest(key, endpoints, int(timeout)))

    def do_remove_voter(self, node_id: str, *, voter: str) -> None:
        key = ReplicaKey(int(voter), directory_id(int(voter)))
        self._ask(node_id, msg.RemoveVoterRequest(key))

    def _key(self, text: str) -> ReplicaKey:
        """Return the key of "3", or of "3+" with the node's directory, "3*" with another."""
        node_id = int(text.rstrip("+*"))
        if text.endswith("+"):
            return ReplicaKey(node_id, directory_id(node_id))
        return ReplicaKey(node_id, directory_id(node_id, disk=1) if text.endswith("*") else None)

    def _ask(self, node_id: str, request: msg.AnyRequest) -> None:
        self.client_requests += 1
        node = self.nodes[int(node_id)]
        message = Message(CLIENT, node.id, self.client_requests, request)
        self._print(node, node.receive(message, self.now_ms))
        self.queue = [m for m in self.queue if m.receiver != CLIENT]

    # what there is to see

    def do_state(self) -> None:
        for node in self.nodes.values():
            if node.quorum is None:
                self._say(f"{node.id} down, log ends at {node.log.end_offset}")
                continue
            election = node.quorum.election
            who = "voter" if node.quorum.is_voter else "observer"
            self._say(
                f"{node.id} {who} {node.quorum.role} epoch={election.epoch}"
                f" leader={show_none(election.leader_id)} end={node.log.end_offset}"
                f" hw={show_none(node.quorum.high_watermark)}"
            )

    def do_log(self, *ids: str) -> None:
        for node_id in ids:
            log = self.nodes[int(node_id)].log
            records = " ".join(show_record(r) for r in log.records)
            self._say(f"{node_id} from {log.start_offset}: {records}")

    def do_voters(self, *ids: str) -> None:
        for node_id in ids:
            quorum = self.nodes[int(node_id)].quorum
            assert quorum is not None
            self._say(f"{node_id} {show_voters(quorum.voters)}")

    def do_describe(self, node_id: str) -> None:
        quorum = self.nodes[int(node_id)].quorum
        assert quorum is not None
        described = quorum.describe(self.now_ms)
        if described is None:
            self._say("not the leader")
            return
        self._say(
            f"leader={described.leader_id} epoch={described.leader_epoch}"
            f" hw={show_none(described.high_watermark)}"
        )
        for kind, replicas in ("voter", described.voters), ("observer", described.observers):
            for r in replicas:
                self._say(
                    f"{kind} {r.key.id} end={show_none(r.log_end_offset)}"
                    f" fetched={show_none(r.last_fetch_ms)}"
                    f" caught-up={show_none(r.last_caught_up_ms)}"
                )

    def do_now(self) -> None:
        self._say(f"{self.now_ms} ms")

    def _print(self, node: Node, effects: list[fx.Effect]) -> None:
        for effect in effects:
            self._say(f"{node.id}  {show_effect(effect)}")

    def _say(self, line: str) -> None:
        if not self.is_quiet:
            self.output.append(line)


def show_none(value: object) -> str:
    return "?" if value is None else str(value)


def show_end(end: OffsetAndEpoch) -> str:
    return f"{end.offset}/{end.epoch}"


def show_key(key: ReplicaKey | None) -> str:
    if key is None:
        return "?"
    mark = {None: "", directory_id(key.id): "+"}.get(key.directory_id, "*")
    return f"{key.id}{mark}"


def show_voters(voters: VoterSet) -> str:
    return "voters=" + ",".join(
        f"{show_key(v.key)}:{v.endpoints[0].port}"
        if v.endpoints[0].port != 9093
        else show_key(v.key)
        for v in voters.voters
    )


def show_record(record: Record) -> str:
    value = record.value
    if isinstance(value, fx.LeaderChange):
        return f"{record.epoch}:leader={value.leader_id}"
    if isinstance(value, fx.KraftVersion):
        return f"{record.epoch}:kraft={value.version}"
    if isinstance(value, fx.Voters):
        return f"{record.epoch}:{show_voters(value.voters)}"
    return f"{record.epoch}:{value}"


def show_records(records: object) -> str:
    assert isinstance(records, tuple)
    return f"{records[0]} " + " ".join(show_record(r) for r in records[1])


def show_effect(effect: fx.Effect) -> str:
    name = type(effect).__name__
    match effect:
        case fx.Persist(election):
            return (
                f"{name} epoch={election.epoch} leader={show_none(election.leader_id)}"
                f" voted={show_key(election.voted)}"
            )
        case fx.RoleChanged(role, epoch, leader_id, start):
            at = "" if start is None else f" start={start}"
            return f"{name} {role} epoch={epoch} leader={show_none(leader_id)}{at}"
        case fx.AppendControl(epoch, offset, records):
            return f"{name} {offset} " + " ".join(show_record(Record(epoch, r)) for r in records)
        case fx.Append(epoch, offset, batch):
            assert isinstance(batch, tuple)
            return f"{name} {offset} " + " ".join(f"{epoch}:{value}" for value in batch)
        case fx.AppendFetched(records):
            return f"{name} {show_records(records)}"
        case fx.Truncate(value) | fx.Committed(value):
            return f"{name} {value}"
        case fx.SetDeadline(at_ms):
            return f"{name} {'never' if at_ms is None else int(at_ms)}"
        case fx.Send(_, peer, message):
            return f"{name} {peer.id} {show_message(message)}"
        case fx.Reply(_, message):
            return f"{name} {show_message(message)}"
        case fx.ReplyWithRecords(_, message, offset, _):
            return f"{name} from={offset} {show_message(message)}"
        case fx.ReplyWithSnapshot(_, message, _):
            return f"{name} {show_message(message)}"
        case fx.WriteSnapshot(snapshot_id, position, data):
            return f"{name} {show_end(snapshot_id)} {position} {data.decode()!r}"
        case fx.InstallSnapshot(snapshot_id):
            return f"{name} {show_end(snapshot_id)}"
    return name


def show_message(message: object) -> str:
    """Return the message's name and its fields, without those that say nothing."""
    assert isinstance(message, tuple)
    shown = [type(message).__name__]
    for field, value in message._asdict().items():  # type: ignore[attr-defined]
        match field, value:
            case (
                (_, None | False | ())
                | ("error" | "log_start_offset", 0)
                | ("endpoints" | "max_wait_ms" | "max_bytes", _)
            ):
                pass
            case "error", _:
                shown.append(value.name)
            case _, True:
                shown.append(field)
            case "records", _:
                shown.append(f"records={show_records(value)}")
            case "preferred_candidates", _:
                shown.append(f"{field}={','.join(show_key(key) for key in value)}")
            case _, ReplicaKey():
                shown.append(f"{field}={show_key(value)}")
            case _, OffsetAndEpoch():
                shown.append(f"{field}={show_end(value)}")
            case _:
                shown.append(f"{field}={value}")
    return " ".join(shown)
