"""A driver for tests: nodes with a log in memory, and messages that wait to be delivered.

`Node` executes effects as the README of `ottla.raft` tells drivers to. What a crash leaves
is what was persisted and flushed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.model.errors import ErrorCode
from ottla.raft import effects as fx
from ottla.raft import events as ev
from ottla.raft import messages as msg
from ottla.raft.config import QuorumConfig
from ottla.raft.election import ElectionState
from ottla.raft.log_view import OffsetAndEpoch
from ottla.raft.quorum import DEFAULT_CONFIG, Quorum
from ottla.raft.voter_history import KraftVersionAt, VotersAt
from ottla.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet

MAX_RECORDS_PER_FETCH = 3


class Record(NamedTuple):
    epoch: int
    value: object


class Snapshot(NamedTuple):
    data: bytes
    control_records: tuple[ev.ControlRecord, ...]


class MemoryLog:
    """A LogView over a list. `flush` copies it to what survives a crash."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.records: list[Record] = []
        self.snapshots: dict[OffsetAndEpoch, Snapshot] = {}
        self.disk: tuple[int, list[Record]] = (0, [])

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.records)

    @property
    def end_epoch(self) -> int:
        if self.records:
            return self.records[-1].epoch
        return self.latest_snapshot.epoch if self.latest_snapshot else 0

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        return min(self.snapshots, default=None)

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return max(self.snapshots, default=None)

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        for offset in range(self.end_offset, self.start_offset, -1):
            found = self.records[offset - 1 - self.start_offset].epoch
            if found <= epoch:
                return OffsetAndEpoch(offset, found)
        snapshot = self.earliest_snapshot
        if snapshot and snapshot.epoch <= epoch and snapshot.offset == self.start_offset:
            return snapshot
        return OffsetAndEpoch(self.start_offset, 0)

    def read(self, offset: int) -> tuple[Record, ...]:
        first = offset - self.start_offset
        return tuple(self.records[first : first + MAX_RECORDS_PER_FETCH])

    def truncate(self, end_offset: int) -> None:
        del self.records[end_offset - self.start_offset :]

    def trim(self, start_offset: int) -> None:
        del self.records[: start_offset - self.start_offset]
        self.start_offset = start_offset
        self.disk = (start_offset, self.disk[1][start_offset - self.disk[0] :])
        for snapshot_id in list(self.snapshots):
            if snapshot_id.offset < start_offset:
                del self.snapshots[snapshot_id]

    def replace(self, snapshot_id: OffsetAndEpoch) -> None:
        self.start_offset, self.records = snapshot_id.offset, []
        for old in list(self.snapshots):
            if old.offset < snapshot_id.offset:
                del self.snapshots[old]
        self.flush()

    def flush(self) -> None:
        self.disk = (self.start_offset, list(self.records))

    def crash(self) -> None:
        self.start_offset, self.records = self.disk[0], list(self.disk[1])

    def control_records(self) -> tuple[ev.ControlRecord, ...]:
        """Return those of the latest snapshot at the start, then those of the log."""
        found: list[ev.ControlRecord] = []
        for snapshot_id, snapshot in sorted(self.snapshots.items()):
            if snapshot_id.offset == self.start_offset:
                found += snapshot.control_records
        return (*found, *control_records(self.records, self.start_offset))


def control_records(
    records: list[Record] | tuple[Record, ...], base_offset: int
) -> tuple[ev.ControlRecord, ...]:
    found: list[ev.ControlRecord] = []
    for offset, record in enumerate(records, base_offset):
        if isinstance(record.value, fx.Voters):
            found.append(VotersAt(offset, record.value.voters))
        elif isinstance(record.value, fx.KraftVersion):
            found.append(KraftVersionAt(offset, record.value.version))
    return tuple(found)


class Message(NamedTuple):
    """A request, a response (`is_response`) or a failure on its way."""

    sender: int
    receiver: int
    request_id: int
    body: msg.AnyRequest | msg.AnyResponse
    is_response: bool = False


def directory_id(node_id: int, disk: int = 0) -> bytes:
    return bytes([1 + disk] * 15 + [node_id])


def voter(node_id: int, port: int = 9093, directory: bytes | None = None) -> Voter:
    endpoint = Endpoint("CONTROLLER", f"node{node_id}", port)
    return Voter(ReplicaKey(node_id, directory), (endpoint,))


class Node:
    """One node: its disk, its state machine, and the execution of its effects."""

    def __init__(
        self,
        local: Voter,
        static_voters: VoterSet,
        send: Callable[[Message], None],
        below: Callable[[int], int],
        config: QuorumConfig = DEFAULT_CONFIG,
        bootstrap: tuple[fx.Peer, ...] = (),
    ) -> None:
        self.id = local.key.id
        self.local = local
        self.static_voters = static_voters
        self.log = MemoryLog()
        self.election: ElectionState | None = None
        self.quorum: Quorum | None = None
        self.deadline_ms: float | None = None
        self.committed = 0
        self.now_ms: float = 0
        self.needs_flush = False
        self.is_stopped = False
        self.installed: ev.SnapshotInstalled | None = None
        self._send = send
        self._below = below
        self._config = config
        self._bootstrap = bootstrap
        self._control: list[ev.ControlRecord] = []
        self._partial: dict[OffsetAndEpoch, bytes] = {}
        self.snapshot_source: Callable[[OffsetAndEpoch], Snapshot] | None = None
        self.watch: Callable[[Node, fx.Effect], None] = lambda node, effect: None

    def start(self, now_ms: float) -> list[fx.Effect]:
        self.quorum = Quorum(self.local, self.log, self._below, self._config, self._bootstrap)
        start = ev.Start(self.election, self.static_voters, self.log.control_records())
        return self.step(start, now_ms)

    def crash(self) -> None:
        self.quorum, self.deadline_ms, self.needs_flush = None, None, False
        self.installed = None
        self._control.clear()
        self._partial.clear()
        self.log.crash()
        self.committed = self.log.start_offset

    def step(self, event: ev.Event, now_ms: float) -> list[fx.Effect]:
        assert self.quorum is not None
        self.now_ms = now_ms
        effects = self.quorum.step(event, now_ms)
        for effect in effects:
            self._execute(effect)
            self.watch(self, effect)
        return effects

    def flush(self, now_ms: float) -> list[fx.Effect]:
        """Flush the log and report it."""
        self.needs_flush = False
        if self.installed is not None:
            installed, self.installed = self.installed, None
            return self.step(installed, now_ms)
        self.log.flush()
        control = tuple(self._control)
        self._control.clear()
        return self.step(ev.LogFlushed(self.log.end_offset, control), now_ms)

    def receive(self, message: Message, now_ms: float) -> list[fx.Effect]:
        if message.is_response:
            return self.step(ev.Response(message.request_id, message.body), now_ms)  # type: ignore[arg-type]
        if isinstance(message.body, msg.ApiVersionsRequest):
            body = msg.ApiVersionsResponse(
                ErrorCode.NONE, self.local.min_kraft_version, self.local.max_kraft_version
            )
            self._send(Message(self.id, message.sender, message.request_id, body, True))
            return []
        request_id = (message.sender, message.request_id)
        return self.step(ev.Request(request_id, message.body), now_ms)  # type: ignore[arg-type]

    def take_snapshot(self) -> OffsetAndEpoch:
        """Snapshot everything committed, and trim the log to it."""
        assert self.quorum is not None
        offset = self.committed
        assert offset > self.log.start_offset
        epoch = self.log.records[offset - 1 - self.log.start_offset].epoch
        kept = [r for r in self.log.control_records() if r.offset < offset]
        voters = [r for r in kept if isinstance(r, VotersAt)][-1:]
        versions = [r for r in kept if isinstance(r, KraftVersionAt)][-1:]
        snapshot_id = OffsetAndEpoch(offset, epoch)
        data = f"snapshot of {offset}".encode()
        self.log.snapshots[snapshot_id] = Snapshot(data, (*versions, *voters))
        self.log.trim(offset)
        self.step(ev.SnapshotTaken(), self.now_ms)
        return snapshot_id

    def _execute(self, effect: fx.Effect) -> None:
        if isinstance(effect, fx.Persist):
            self.election = effect.election
        elif isinstance(effect, fx.SetDeadline):
            self.deadline_ms = effect.at_ms
        elif isinstance(effect, fx.Committed):
            assert effect.high_watermark <= self.log.end_offset
            self.committed = effect.high_watermark
        elif isinstance(effect, fx.Send):
            self._send(Message(self.id, effect.peer.id, effect.request_id, effect.message))
        elif isinstance(effect, fx.ShutdownFinished):
            self.is_stopped = True
        elif isinstance(effect, fx.Reply | fx.ReplyWithRecords | fx.ReplyWithSnapshot):
            self._reply(effect)
        else:
            self._execute_on_log(effect)

    def _reply(self, effect: fx.Reply | fx.ReplyWithRecords | fx.ReplyWithSnapshot) -> None:
        body: msg.AnyResponse = effect.message
        if isinstance(effect, fx.ReplyWithRecords):
            records = self.log.read(effect.offset)
            body = effect.message._replace(records=(effect.offset, records) if records else None)
        elif isinstance(effect, fx.ReplyWithSnapshot):
            body = self._snapshot_part(effect.message)
        assert isinstance(effect.request_id, tuple)
        sender, request_id = effect.request_id
        self._send(Message(self.id, sender, request_id, body, True))

    def _snapshot_part(self, message: msg.FetchSnapshotResponse) -> msg.FetchSnapshotResponse:
        assert message.snapshot_id is not None
        snapshot = self.log.snapshots.get(message.snapshot_id)
        if snapshot is None:
            return message._replace(error=ErrorCode.SNAPSHOT_NOT_FOUND)
        data = snapshot.data[message.position : message.position + 8]
        return message._replace(size=len(snapshot.data), data=data)

    def _execute_on_log(self, effect: fx.Effect) -> None:
        log = self.log
        if isinstance(effect, fx.AppendControl):
            assert effect.base_offset == log.end_offset
            log.records += [Record(effect.epoch, record) for record in effect.records]
        elif isinstance(effect, fx.Append):
            assert effect.base_offset == log.end_offset
            assert isinstance(effect.batch, tuple)
            log.records += [Record(effect.epoch, value) for value in effect.batch]
        elif isinstance(effect, fx.AppendFetched):
            assert isinstance(effect.records, tuple)
            base_offset, records = effect.records
            assert base_offset == log.end_offset
            self._control += control_records(records, base_offset)
            log.records += records
        elif isinstance(effect, fx.Truncate):
            assert effect.end_offset >= self.committed
            log.truncate(effect.end_offset)
        elif isinstance(effect, fx.Flush):
            self.needs_flush = True
        elif isinstance(effect, fx.WriteSnapshot):
            before = self._partial.get(effect.snapshot_id, b"") if effect.position else b""
            assert len(before) == effect.position
            self._partial[effect.snapshot_id] = before + effect.data
        elif isinstance(effect, fx.InstallSnapshot):
            assert self.snapshot_source is not None
            snapshot = self.snapshot_source(effect.snapshot_id)
            assert self._partial.pop(effect.snapshot_id) == snapshot.data
            log.snapshots[effect.snapshot_id] = snapshot
            log.replace(effect.snapshot_id)
            self.installed = ev.SnapshotInstalled(effect.snapshot_id, snapshot.control_records)
            self.needs_flush = True
