"""What the driver must do, in the order given. The state machine itself does nothing.

`Persist` must be durable before the next effect is executed. The package's README has
the rest of the contract.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from ottla.model.value import Value
from ottla.raft.election import ElectionState
from ottla.raft.log_view import OffsetAndEpoch
from ottla.raft.voters import Endpoint, VoterSet

if TYPE_CHECKING:
    from ottla.raft.messages import AnyRequest, AnyResponse, FetchResponse, FetchSnapshotResponse

RoleName: TypeAlias = Literal[
    "unattached", "prospective", "candidate", "leader", "follower", "resigned"
]


class Persist(Value):
    """Write `quorum-state` and flush it."""

    election: ElectionState


class RoleChanged(Value):
    """The node has this role now. `epoch_start_offset` is set for a leader only."""

    role: RoleName
    epoch: int
    leader_id: int | None
    epoch_start_offset: int | None = None


class LeaderChange(Value):
    """The first record of an epoch."""

    leader_id: int
    voter_ids: tuple[int, ...]
    granting_ids: tuple[int, ...]


class KraftVersion(Value):
    """A KRaftVersionRecord to write."""

    version: int


class Voters(Value):
    """A VotersRecord to write."""

    voters: VoterSet


class AppendControl(Value):
    """Append one control batch with these records at `base_offset`, the end of the log."""

    epoch: int
    base_offset: int
    records: tuple[LeaderChange | KraftVersion | Voters, ...]


class Append(Value):
    """Append the controller's batch at `base_offset`, the end of the log."""

    epoch: int
    base_offset: int
    batch: object


class AppendFetched(Value):
    """Append what the leader sent, as it is; what is damaged is left out."""

    records: object


class Truncate(Value):
    """Remove the records at and after `end_offset`."""

    end_offset: int


class Flush(Value):
    """Make the log durable, then report `LogFlushed`."""


class Committed(Value):
    """The high watermark moved up to here: the records below it are replicated."""

    high_watermark: int


class Peer(Value):
    """The receiver: a node's id (negative for a bootstrap server) and its endpoints."""

    id: int
    endpoints: tuple[Endpoint, ...]


class Send(Value):
    """Send a request; report `Response` or `RequestFailed` with its `request_id`."""

    request_id: int
    peer: Peer
    message: AnyRequest


class Reply(Value):
    """Answer a peer's request."""

    request_id: object
    message: AnyResponse


class ReplyWithRecords(Value):
    """Answer a Fetch request with this and the log's records from `offset` on, if any."""

    request_id: object
    message: FetchResponse
    offset: int
    max_bytes: int


class ReplyWithSnapshot(Value):
    """Answer a FetchSnapshot request with this and a part of the snapshot.

    The driver adds the size and the bytes, or the error that the snapshot or the position
    does not exist.
    """

    request_id: object
    message: FetchSnapshotResponse
    max_bytes: int


class WriteSnapshot(Value):
    """Write a part of a snapshot that is being fetched. Position 0 starts it again."""

    snapshot_id: OffsetAndEpoch
    position: int
    data: bytes


class InstallSnapshot(Value):
    """Flush the fetched snapshot, replace the whole log by it, report `SnapshotInstalled`."""

    snapshot_id: OffsetAndEpoch


class SetDeadline(Value):
    """Report `TimePassed` at this time; it replaces the last deadline. None: never."""

    at_ms: float | None


class ShutdownFinished(Value):
    """Nothing is left to hand over: the node can stop."""


Effect: TypeAlias = (
    Persist
    | RoleChanged
    | AppendControl
    | Append
    | AppendFetched
    | Truncate
    | Flush
    | Committed
    | Send
    | Reply
    | ReplyWithRecords
    | ReplyWithSnapshot
    | WriteSnapshot
    | InstallSnapshot
    | SetDeadline
    | ShutdownFinished
)
