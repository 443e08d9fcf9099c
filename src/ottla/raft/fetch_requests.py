"""The leader's answers to Fetch and FetchSnapshot requests (KIP-595, KIP-630).

A Fetch that finds nothing new is parked until the log grows, the high watermark moves, its
time is over, or the leadership ends. There is one parked Fetch for each replica. Whoever can reach
a controller can fetch as any number of replicas, and close its connections: so there is a limit of
their number, and of the time that they wait.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ottla.model.errors import ErrorCode
from ottla.raft.effects import Reply, ReplyWithRecords, ReplyWithSnapshot
from ottla.raft.leader import Leader
from ottla.raft.log_view import LogView, OffsetAndEpoch
from ottla.raft.messages import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from ottla.raft.replicas import MOST_OBSERVERS
from ottla.raft.role import NEVER
from ottla.raft.voters import Endpoint

LeaderFields: TypeAlias = tuple[int, int | None, tuple[Endpoint, ...]]
BOOTSTRAP_SNAPSHOT_ID = OffsetAndEpoch(0, 0)
MOST_WAIT_MS = 30_000


class ParkedFetch(NamedTuple):
    """A Fetch that waits for something new."""

    request_id: object
    request: FetchRequest
    deadline_ms: float


def handle(leader: Leader, request_id: object, request: FetchRequest) -> None:
    """Note what the replica has, and answer or park its Fetch."""
    quorum = leader.quorum
    log = quorum.log
    if earlier := leader.parked_fetches.pop(request.replica, None):
        _reply(leader, earlier)
    if snapshot_id := _snapshot_to_fetch(log, request):
        leader.note_fetch(request.replica)
        response = _response(leader)._replace(snapshot_id=snapshot_id)
        quorum.emit(Reply(request_id, response))
    elif diverging := _diverging(log, request):
        leader.note_fetch(request.replica)
        response = _response(leader)._replace(diverging=diverging)
        quorum.emit(Reply(request_id, response))
    else:
        _note_replica(leader, request)
        deadline_ms = quorum.now_ms + min(request.max_wait_ms, MOST_WAIT_MS)
        parked = ParkedFetch(request_id, request, deadline_ms)
        if _has_news(leader, request) or request.max_wait_ms <= 0:
            _reply(leader, parked)
        else:
            earlier = leader.parked_fetches.pop(request.replica, None)
            if earlier is not None:  # of a connection that may be gone
                _reply(leader, earlier)
            if len(leader.parked_fetches) >= MOST_OBSERVERS:
                _reply(leader, leader.parked_fetches.pop(next(iter(leader.parked_fetches))))
            leader.parked_fetches[request.replica] = parked


def _note_replica(leader: Leader, request: FetchRequest) -> None:
    key, now_ms = request.replica, leader.quorum.now_ms
    if key.id < 0 or key.id == leader.quorum.local.key.id:
        return
    voter = leader.replicas.voter(key)
    replica = voter or leader.replicas.observer(key, now_ms)
    replica.fetched(request.fetch_offset, leader.end_offset, now_ms)
    replica.heard_key = key
    leader.note_fetch(key)
    if voter is not None:
        leader.update_high_watermark()


def _snapshot_to_fetch(log: LogView, request: FetchRequest) -> OffsetAndEpoch | None:
    """Return the latest snapshot if the log does not go back to what is asked for."""
    latest, earliest = log.latest_snapshot, log.earliest_snapshot
    offset, epoch = request.fetch_offset, request.last_fetched_epoch
    if latest is None or earliest is None:
        return None
    if offset == 0 and latest != BOOTSTRAP_SNAPSHOT_ID:
        return latest
    if offset == log.start_offset == 0:
        return None
    is_before = offset < log.start_offset or epoch < earliest.epoch
    is_other = offset == log.start_offset and epoch != earliest.epoch
    return latest if is_before or is_other else None


def _diverging(log: LogView, request: FetchRequest) -> OffsetAndEpoch | None:
    """Return where the leader's log left the replica's, None if it did not."""
    if request.fetch_offset == log.start_offset == 0:
        return None
    end = log.end_offset_for_epoch(request.last_fetched_epoch)
    if end.epoch != request.last_fetched_epoch or end.offset < request.fetch_offset:
        return end
    return None


def _has_news(leader: Leader, request: FetchRequest) -> bool:
    known = -1 if request.high_watermark is None else request.high_watermark
    high_watermark = -1 if leader.high_watermark is None else leader.high_watermark
    return request.fetch_offset < leader.end_offset or known < high_watermark


def _response(leader: Leader) -> FetchResponse:
    quorum = leader.quorum
    return FetchResponse(
        ErrorCode.NONE,
        quorum.epoch,
        quorum.election.leader_id,
        quorum.leader_endpoints,
        leader.high_watermark,
        quorum.log.start_offset,
    )


def _reply(leader: Leader, parked: ParkedFetch) -> None:
    request = parked.request
    leader.quorum.emit(
        ReplyWithRecords(
            parked.request_id, _response(leader), request.fetch_offset, request.max_bytes
        )
    )


def _fail(leader: Leader, request_id: object) -> None:
    quorum = leader.quorum
    response = FetchResponse(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        quorum.epoch,
        quorum.election.leader_id,
        quorum.leader_endpoints,
    )
    quorum.emit(Reply(request_id, response))


def complete_parked(leader: Leader) -> None:
    """Answer the parked fetches that there is news for."""
    for key, parked in list(leader.parked_fetches.items()):
        if _has_news(leader, parked.request):
            del leader.parked_fetches[key]
            _reply(leader, parked)


def expire_parked(leader: Leader) -> float:
    """Answer the parked fetches whose time is over; return when the next one's is."""
    next_ms = NEVER
    for key, parked in list(leader.parked_fetches.items()):
        if leader.quorum.now_ms >= parked.deadline_ms:
            del leader.parked_fetches[key]
            _reply(leader, parked)
        else:
            next_ms = min(next_ms, parked.deadline_ms)
    return next_ms


def fail_parked(leader: Leader) -> None:
    """Answer the parked fetches with an error: this node is no longer the leader."""
    for parked in leader.parked_fetches.values():
        _fail(leader, parked.request_id)
    leader.parked_fetches.clear()


def handle_snapshot(leader: Leader, request_id: object, request: FetchSnapshotRequest) -> None:
    """Let the driver answer with a part of the snapshot."""
    quorum = leader.quorum
    leader.note_fetch(request.replica)
    response = FetchSnapshotResponse(
        ErrorCode.NONE,
        quorum.epoch,
        quorum.election.leader_id,
        quorum.leader_endpoints,
        request.snapshot_id,
        request.position,
    )
    quorum.emit(ReplyWithSnapshot(request_id, response, request.max_bytes))
