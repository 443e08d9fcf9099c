"""Control records of the metadata log as Raft needs them, and the other way round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.metadata.control_records import QuorumRecords, decode_control
from ottla.model.ids import ZERO_UUID
from ottla.raft.effects import KraftVersion, LeaderChange, Voters
from ottla.raft.events import ControlRecord
from ottla.raft.voter_history import KraftVersionAt, VotersAt
from ottla.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.records.batch import scan
from ottla.records.record import records_of
from ottla.wire.message import Message
from ottla.wire.messages import voters_record as wire
from ottla.wire.messages.k_raft_version_record import KRaftVersionRecord
from ottla.wire.messages.leader_change_message import LeaderChangeMessage
from ottla.wire.messages.leader_change_message import Voter as LeaderChangeVoter
from ottla.wire.messages.voters_record import VotersRecord


def to_message(record: LeaderChange | KraftVersion | Voters) -> Message:
    """Return the record that the state machine wants to be written."""
    if isinstance(record, LeaderChange):
        return LeaderChangeMessage(
            leader_id=record.leader_id,
            voters=[LeaderChangeVoter(voter_id=i) for i in record.voter_ids],
            granting_voters=[LeaderChangeVoter(voter_id=i) for i in record.granting_ids],
        )
    if isinstance(record, KraftVersion):
        return KRaftVersionRecord(k_raft_version=record.version)
    return VotersRecord(voters=[_voter(voter) for voter in record.voters.voters])


def at_offset(message: Message | None, offset: int) -> ControlRecord | None:
    """Return a control record as Raft keeps it, None if Raft does not keep it."""
    if isinstance(message, KRaftVersionRecord):
        return KraftVersionAt(offset, message.k_raft_version)
    if isinstance(message, VotersRecord):
        return VotersAt(offset, voter_set(message))
    return None


def of_snapshot(records: QuorumRecords, offset: int) -> tuple[ControlRecord, ...]:
    """Return the control records of a snapshot that ends at an offset."""
    found = (at_offset(message, offset - 1) for message in records.messages())
    return tuple(record for record in found if record is not None)


def in_batches(data: bytearray) -> list[ControlRecord]:
    """Return the voters and kraft.versions in whole batches, whose CRCs were checked."""
    found: list[ControlRecord] = []
    for batch in scan(data, 0, len(data)):
        if batch.is_control:
            found += _in_batch(bytes(data[batch.position : batch.end]), batch.base_offset)
    return found


def _in_batch(data: bytes, base_offset: int) -> Iterable[ControlRecord]:
    for index, record in enumerate(records_of(data)):
        kept = at_offset(decode_control(record), base_offset + index)
        if kept is not None:
            yield kept


def voter_set(record: VotersRecord) -> VoterSet:
    """Return the voters of a record."""
    return VoterSet(
        Voter(
            ReplicaKey(voter.voter_id, _directory(voter.voter_directory_id)),
            tuple(Endpoint(e.name, e.host, e.port) for e in voter.endpoints),
            voter.k_raft_version_feature.min_supported_version,
            voter.k_raft_version_feature.max_supported_version,
        )
        for voter in record.voters
    )


def _directory(directory_id: bytes) -> bytes | None:
    return None if directory_id == ZERO_UUID else directory_id


def _voter(voter: Voter) -> wire.Voter:
    return wire.Voter(
        voter_id=voter.key.id,
        voter_directory_id=voter.key.directory_id or ZERO_UUID,
        endpoints=_endpoints(voter.endpoints),
        k_raft_version_feature=wire.KRaftVersionFeature(
            min_supported_version=voter.min_kraft_version,
            max_supported_version=voter.max_kraft_version,
        ),
    )


def _endpoints(endpoints: Sequence[Endpoint]) -> list[wire.Endpoint]:
    return [wire.Endpoint(name=name, host=host, port=port) for name, host, port in endpoints]
