"""What happens to a quorum member. `Quorum.step` takes one of these.

`request_id` is a token: the driver chooses it for requests of peers, the state machine
for requests to peers.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from ottla.model.value import Value
from ottla.raft.election import ElectionState
from ottla.raft.log_view import OffsetAndEpoch
from ottla.raft.voter_history import KraftVersionAt, VotersAt
from ottla.raft.voters import VoterSet

if TYPE_CHECKING:
    from ottla.raft.messages import AnyRequest, AnyResponse

ControlRecord: TypeAlias = VotersAt | KraftVersionAt


class Start(Value):
    """The node starts. Its whole log is flushed, and its control records were read."""

    election: ElectionState | None = None
    """The content of `quorum-state`, None if there is no such file yet."""
    static_voters: VoterSet = VoterSet()
    """`controller.quorum.voters`; used while the log holds no voter set."""
    control_records: tuple[ControlRecord, ...] = ()
    """Voter sets and kraft.versions of the latest snapshot and the log, in their order."""


class TimePassed(Value):
    """The deadline of the last `SetDeadline` has come."""


class Request(Value):
    """A peer asks. The answer is an effect with the same `request_id`."""

    request_id: object
    message: AnyRequest


class Response(Value):
    """A peer answered the request of a `Send`."""

    request_id: int
    message: AnyResponse


class Failure(Enum):
    """Why a request got no answer, as far as that tells something about the peer."""

    UNKNOWN = "unknown"
    """The peer may be slow, cut off, or overloaded."""
    CLOSED = "closed"
    """The peer closed the connection. Its process may have ended: connect again to find out."""
    REFUSED = "refused"
    """Nobody listens at the peer's address: its process has ended."""


class RequestFailed(Value):
    """The request of a `Send` will get no answer."""

    request_id: int
    failure: Failure = Failure.UNKNOWN


class AppendRecords(Value):
    """The local controller, as leader of `epoch`, appends a batch of `record_count` records."""

    epoch: int
    batch: object
    record_count: int


class LogFlushed(Value):
    """All earlier effects on the log were executed; below `end_offset` it is durable."""

    end_offset: int
    control_records: tuple[ControlRecord, ...] = ()
    """The control records in what an `AppendFetched` appended."""


class SnapshotInstalled(Value):
    """`InstallSnapshot` was executed: the log is empty and starts at the snapshot's end."""

    snapshot_id: OffsetAndEpoch
    control_records: tuple[ControlRecord, ...] = ()


class SnapshotTaken(Value):
    """The local state machine took a snapshot, and the log may begin at a later record now."""


class Resign(Value):
    """The local controller gives up its leadership of `epoch`. Stale epochs are ignored."""

    epoch: int


class ShutDown(Value):
    """The node wants to stop. A leader hands over first; `ShutdownFinished` follows."""


Event: TypeAlias = (
    Start
    | TimePassed
    | Request
    | Response
    | RequestFailed
    | AppendRecords
    | LogFlushed
    | SnapshotInstalled
    | SnapshotTaken
    | Resign
    | ShutDown
)
