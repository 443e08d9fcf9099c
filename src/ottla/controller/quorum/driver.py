"""Drives the Raft state machine of a node in a quorum of several: its disk, network and timers.

The state machine decides, this class executes its effects one after the other (the contract is
in the README of `raft`). Events that come while `quorum-state` is on its way to the disk wait,
as nothing may happen before it is there. Flushes of the log run off the loop, one at a time.

If the disk fails, the node must end: an effect cannot be refused. The error leaves this class.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from ottla.controller.metadata_log import MetadataLog
from ottla.controller.quorum import control_records
from ottla.controller.quorum.peers import QuorumPeers
from ottla.controller.quorum.snapshot_files import SnapshotFiles
from ottla.log.damage import LogDirsFailed
from ottla.metadata.control_records import control_batch
from ottla.model.errors import ApiError
from ottla.ports import write_file_atomically
from ottla.raft.effects import (
    Append,
    AppendControl,
    AppendFetched,
    Committed,
    Effect,
    Flush,
    InstallSnapshot,
    Persist,
    Reply,
    ReplyWithRecords,
    ReplyWithSnapshot,
    RoleChanged,
    Send,
    SetDeadline,
    ShutdownFinished,
    Truncate,
    WriteSnapshot,
)
from ottla.raft.election import ElectionState
from ottla.raft.events import (
    AppendRecords,
    ControlRecord,
    Event,
    Failure,
    LogFlushed,
    Request,
    RequestFailed,
    Resign,
    Response,
    ShutDown,
    SnapshotInstalled,
    SnapshotTaken,
    Start,
    TimePassed,
)
from ottla.raft.log_view import OffsetAndEpoch
from ottla.raft.messages import AnyRequest, AnyResponse
from ottla.raft.quorum import Quorum
from ottla.raft.quorum_state_file import FILE_NAME, encode
from ottla.replication.timers import Timer, Timers

AnswerTo = Callable[[AnyResponse, bytes | None], None]
"""Takes the answer to a peer's request, and the records that go with it."""


class QuorumListener(Protocol):
    """Who follows the quorum: the controller."""

    def appended(self, base_offset: int) -> None:
        """Take note that the next batch of `append` is in the log."""
        ...

    def committed(self, high_watermark: int) -> None:
        """Take note that the records below the high watermark are committed."""
        ...

    def role_changed(self, change: RoleChanged) -> None:
        """Take note of this node's role and of who leads."""
        ...

    def snapshot_installed(self, snapshot_id: OffsetAndEpoch) -> tuple[ControlRecord, ...]:
        """Start over from a snapshot of the leader; return the control records in it."""
        ...


class QuorumDriver:
    """One node's part in the quorum."""

    def __init__(
        self,
        quorum: Quorum,
        log: MetadataLog,
        peers: QuorumPeers,
        timers: Timers,
        listener: QuorumListener,
    ) -> None:
        self._quorum = quorum
        self._log = log
        self._resources = log.log.resources
        self._peers = peers
        self._timers = timers
        self._listener = listener
        self._snapshots = SnapshotFiles(log)
        self._events: deque[Event] = deque()
        self._effects: deque[Effect] = deque()
        self._is_started = False
        self._is_running = False
        self._is_persisting = False
        self._has_persisted = False
        self._is_flush_due = False
        self._is_flushing = False
        self._unflushed: list[ControlRecord] = []
        """The control records of fetched batches that are not flushed yet."""
        self._timer: Timer | None = None
        self._refuse: Callable[[ApiError], None] | None = None
        self._shut_down: Callable[[], None] | None = None

    # -- what the node sees --------------------------------------------------------------

    @property
    def quorum(self) -> Quorum:
        return self._quorum

    @property
    def epoch(self) -> int:
        return self._quorum.election.epoch

    def start(self, start: Start) -> None:
        """Begin. Elections and fetches need the event loop to run. Requests wait until then."""
        self._is_started = True
        self._events.appendleft(start)
        self._run()

    def append(
        self,
        epoch: int,
        batches: Sequence[tuple[bytearray, int]],
        refuse: Callable[[ApiError], None],
    ) -> None:
        """Append batches, each with its number of records, as leader of this epoch.

        `refuse` is called if the node does not lead that epoch any more.
        """
        self._refuse = refuse
        for batch, count in batches:
            self._events.append(AppendRecords(epoch, batch, count))
        self._run()

    def request(self, message: AnyRequest, answer: AnswerTo) -> None:
        """Take a request of a peer; `answer` is called once, now or later."""
        self._take(Request(answer, message))

    def resign(self, epoch: int) -> None:
        """Give up the leadership of an epoch."""
        self._take(Resign(epoch))

    def snapshot_taken(self) -> None:
        """Take note that this node has removed the records before one of its snapshots."""
        self._take(SnapshotTaken())

    def shut_down(self, done: Callable[[], None]) -> None:
        """Hand over the leadership if this node has it; then `done` is called."""
        self._shut_down = done
        self._take(ShutDown())

    def close(self) -> None:
        """Close the connections to peers."""
        self._peers.close()
        if self._timer is not None:
            self._timer.cancel()

    # -- events and effects --------------------------------------------------------------

    def _take(self, event: Event) -> None:
        self._events.append(event)
        self._run()

    def _run(self) -> None:
        """Execute effects in order and take events, until something has to wait for the disk."""
        if self._is_running or not self._is_started:
            return  # an effect has led here: the loop below goes on with it
        self._is_running = True
        try:
            while not self._is_persisting and (self._effects or self._events):
                if self._effects:
                    self._execute(self._effects.popleft())
                else:
                    self._step(self._events.popleft())
        finally:
            self._is_running = False
        self._flush_if_due()

    def _step(self, event: Event) -> None:
        try:
            self._effects.extend(self._quorum.step(event, self._resources.clock.monotonic_ms()))
        except ApiError as error:
            assert isinstance(event, AppendRecords), f"{event} cannot be refused"
            if self._refuse is not None:
                refuse, self._refuse = self._refuse, None
                refuse(error)

    def _execute(self, effect: Effect) -> None:
        try:
            _EXECUTE[type(effect)](self, effect)
        except OSError as error:
            raise end_of_broker(error) from error

    # -- the log -------------------------------------------------------------------------

    def _append(self, effect: Append) -> None:
        assert isinstance(effect.batch, bytearray)
        offset = self._log.append(effect.batch, effect.epoch)
        assert offset == effect.base_offset, f"appended at {offset}"
        self._listener.appended(offset)

    def _append_control(self, effect: AppendControl) -> None:
        messages = [control_records.to_message(record) for record in effect.records]
        batch = control_batch(messages, self._resources.clock.wall_ms())
        offset = self._log.append(batch, effect.epoch)
        assert offset == effect.base_offset, f"appended at {offset}"

    def _append_fetched(self, effect: AppendFetched) -> None:
        data = effect.records
        assert isinstance(data, bytearray)
        try:
            size = self._log.append_fetched(data)
        except ApiError as error:
            self._resources.notes.append(f"metadata of the leader is not appended: {error}")
            return
        self._unflushed += control_records.in_batches(data[:size])

    def _truncate(self, effect: Truncate) -> None:
        self._unflushed = [each for each in self._unflushed if each.offset < effect.end_offset]
        self._log.truncate(effect.end_offset)

    def _flush(self, effect: Flush) -> None:
        self._is_flush_due = True

    def _flush_if_due(self) -> None:
        if not self._is_flush_due or self._is_flushing or self._is_persisting:
            return
        self._is_flush_due = False
        self._is_flushing = True
        control, self._unflushed = tuple(self._unflushed), []
        end_offset = self._log.end_offset

        def flushed(error: OSError | None) -> None:
            self._is_flushing = False
            if error is not None:
                raise end_of_broker(error) from error
            # A truncation may have come in between.
            self._take(LogFlushed(min(end_offset, self._log.end_offset), control))

        self._log.flush(flushed)

    # -- quorum-state and time -----------------------------------------------------------

    def _persist(self, effect: Persist) -> None:
        """Write quorum-state off the loop; nothing else happens until it is on disk."""
        content = self._quorum_state(effect.election)
        path = self._log.log.path(FILE_NAME)
        files = self._resources.files
        is_first = not self._has_persisted
        self._is_persisting = True

        def persist() -> None:
            write_file_atomically(files, path, content)
            if is_first:  # the directory itself may be new: its name must be on disk as well
                files.sync_dir(path.rsplit("/", 2)[0])

        def persisted(error: OSError | None) -> None:
            self._is_persisting = False
            if error is not None:
                raise end_of_broker(error) from error
            self._has_persisted = True
            self._run()

        self._resources.background.submit(persist, persisted)

    def _quorum_state(self, election: ElectionState) -> bytes:
        quorum = self._quorum
        return encode(election, quorum.kraft_version, quorum.voters.ids)

    def _set_deadline(self, effect: SetDeadline) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if effect.at_ms is not None:
            self._timer = self._timers.at(effect.at_ms, lambda: self._take(TimePassed()))

    # -- the network ---------------------------------------------------------------------

    def _send(self, effect: Send) -> None:
        def done(result: AnyResponse | OSError) -> None:
            if isinstance(result, OSError):
                self._take(RequestFailed(effect.request_id, _failure(result)))
            else:
                self._take(Response(effect.request_id, result))

        self._peers.send(effect, done)

    def _reply(self, effect: Reply) -> None:
        _answer(effect.request_id)(effect.message, None)

    def _reply_with_records(self, effect: ReplyWithRecords) -> None:
        records = self._log.read(effect.offset, effect.max_bytes)
        _answer(effect.request_id)(effect.message, records)

    def _reply_with_snapshot(self, effect: ReplyWithSnapshot) -> None:
        message = self._snapshots.part(effect.message, effect.max_bytes)
        _answer(effect.request_id)(message, None)

    # -- snapshots -----------------------------------------------------------------------

    def _write_snapshot(self, effect: WriteSnapshot) -> None:
        self._snapshots.write_part(effect.snapshot_id, effect.position, effect.data)

    def _install_snapshot(self, effect: InstallSnapshot) -> None:
        snapshot_id = effect.snapshot_id

        def installed(error: OSError | None) -> None:
            if error is not None:
                raise end_of_broker(error) from error
            control = self._listener.snapshot_installed(snapshot_id)
            self._take(SnapshotInstalled(snapshot_id, control))

        self._snapshots.install(snapshot_id, installed)

    # -- news ----------------------------------------------------------------------------

    def _committed(self, effect: Committed) -> None:
        self._log.log.high_watermark = effect.high_watermark
        self._listener.committed(effect.high_watermark)

    def _role_changed(self, effect: RoleChanged) -> None:
        self._listener.role_changed(effect)

    def _shutdown_finished(self, effect: ShutdownFinished) -> None:
        done, self._shut_down = self._shut_down, None
        if done is not None:
            done()


_EXECUTE: dict[type, Callable[..., None]] = {
    Append: QuorumDriver._append,
    AppendControl: QuorumDriver._append_control,
    AppendFetched: QuorumDriver._append_fetched,
    Committed: QuorumDriver._committed,
    Flush: QuorumDriver._flush,
    InstallSnapshot: QuorumDriver._install_snapshot,
    Persist: QuorumDriver._persist,
    Reply: QuorumDriver._reply,
    ReplyWithRecords: QuorumDriver._reply_with_records,
    ReplyWithSnapshot: QuorumDriver._reply_with_snapshot,
    RoleChanged: QuorumDriver._role_changed,
    Send: QuorumDriver._send,
    SetDeadline: QuorumDriver._set_deadline,
    ShutdownFinished: QuorumDriver._shutdown_finished,
    Truncate: QuorumDriver._truncate,
    WriteSnapshot: QuorumDriver._write_snapshot,
}


def _failure(error: OSError) -> Failure:
    if isinstance(error, ConnectionRefusedError):
        return Failure.REFUSED
    return Failure.CLOSED if isinstance(error, ConnectionResetError) else Failure.UNKNOWN


def _answer(request_id: object) -> AnswerTo:
    assert callable(request_id)
    return request_id


def end_of_broker(error: OSError) -> LogDirsFailed:
    """Return why the broker ends: a member of the quorum cannot do without its log."""
    return LogDirsFailed(f"Shutdown broker because the metadata log cannot be used: {error}")
