"""Control records of the metadata log and of snapshots (KIP-595, KIP-630, KIP-853).

Their values are laid out like messages, with their version in front.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from ottla.metadata.serde import MetadataError
from ottla.model.ids import ZERO_UUID
from ottla.records.control import ControlType, control_type
from ottla.records.record import Record, build_batch
from ottla.wire.codec import DecodeError, decoder, encoder
from ottla.wire.message import Field, Items, Message, as_list

_KEY = Struct(">hh")
_VERSION = Struct(">h")


class LeaderChangeVoter(Message):
    __slots__ = ("voter_directory_id", "voter_id")
    FIELDS = (Field("voter_id", "int32", (0, 1)), Field("voter_directory_id", "uuid", (1, 1)))

    def __init__(self, *, voter_id: int = 0, voter_directory_id: bytes = ZERO_UUID) -> None:
        self.voter_id = voter_id
        self.voter_directory_id = voter_directory_id


class LeaderChangeMessage(Message):
    """The first record of a leader's epoch."""

    __slots__ = ("granting_voters", "leader_id", "version", "voters")
    MAX_VERSION = 1
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (
        Field("version", "int16", (0, 1)),
        Field("leader_id", "int32", (0, 1)),
        Field("voters", "array", (0, 1), of=LeaderChangeVoter),
        Field("granting_voters", "array", (0, 1), of=LeaderChangeVoter),
    )

    def __init__(
        self,
        *,
        version: int = 0,
        leader_id: int = 0,
        voters: Items[LeaderChangeVoter] = (),
        granting_voters: Items[LeaderChangeVoter] = (),
    ) -> None:
        self.version = version
        self.leader_id = leader_id
        self.voters = as_list(voters)
        self.granting_voters = as_list(granting_voters)


class SnapshotHeaderRecord(Message):
    """The first record of a snapshot."""

    __slots__ = ("last_contained_log_timestamp", "version")
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (
        Field("version", "int16", (0, 0)),
        Field("last_contained_log_timestamp", "int64", (0, 0)),
    )

    def __init__(self, *, version: int = 0, last_contained_log_timestamp: int = 0) -> None:
        self.version = version
        self.last_contained_log_timestamp = last_contained_log_timestamp


class SnapshotFooterRecord(Message):
    """The last record of a snapshot: a file without it is not whole."""

    __slots__ = ("version",)
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (Field("version", "int16", (0, 0)),)

    def __init__(self, *, version: int = 0) -> None:
        self.version = version


class KRaftVersionRecord(Message):
    """The version of the quorum protocol: from 1 on the voters are in the log."""

    __slots__ = ("k_raft_version", "version")
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (Field("version", "int16", (0, 0)), Field("k_raft_version", "int16", (0, 0)))

    def __init__(self, *, version: int = 0, k_raft_version: int = 0) -> None:
        self.version = version
        self.k_raft_version = k_raft_version


class VoterEndpoint(Message):
    __slots__ = ("host", "name", "port")
    FIELDS = (
        Field("name", "string", (0, 0)),
        Field("host", "string", (0, 0)),
        Field("port", "uint16", (0, 0)),
    )

    def __init__(self, *, name: str = "", host: str = "", port: int = 0) -> None:
        self.name = name
        self.host = host
        self.port = port


class KRaftVersionFeature(Message):
    __slots__ = ("max_supported_version", "min_supported_version")
    FIELDS = (
        Field("min_supported_version", "int16", (0, 0)),
        Field("max_supported_version", "int16", (0, 0)),
    )

    def __init__(self, *, min_supported_version: int = 0, max_supported_version: int = 0) -> None:
        self.min_supported_version = min_supported_version
        self.max_supported_version = max_supported_version


class VotersRecordVoter(Message):
    __slots__ = ("endpoints", "k_raft_version_feature", "voter_directory_id", "voter_id")
    FIELDS = (
        Field("voter_id", "int32", (0, 0)),
        Field("voter_directory_id", "uuid", (0, 0)),
        Field("endpoints", "array", (0, 0), of=VoterEndpoint),
        Field("k_raft_version_feature", "struct", (0, 0), of=KRaftVersionFeature),
    )

    def __init__(
        self,
        *,
        voter_id: int = 0,
        voter_directory_id: bytes = ZERO_UUID,
        endpoints: Items[VoterEndpoint] = (),
        k_raft_version_feature: KRaftVersionFeature | None = None,
    ) -> None:
        self.voter_id = voter_id
        self.voter_directory_id = voter_directory_id
        self.endpoints = as_list(endpoints)
        self.k_raft_version_feature = k_raft_version_feature or KRaftVersionFeature()


class VotersRecord(Message):
    """The voters of the quorum (KIP-853)."""

    __slots__ = ("version", "voters")
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (
        Field("version", "int16", (0, 0)),
        Field("voters", "array", (0, 0), of=VotersRecordVoter),
    )

    def __init__(self, *, version: int = 0, voters: Items[VotersRecordVoter] = ()) -> None:
        self.version = version
        self.voters = as_list(voters)


class QuorumRecords(NamedTuple):
    """The latest records about the voters in the log and its snapshot, if there are any."""

    kraft_version: KRaftVersionRecord | None = None
    voters: VotersRecord | None = None

    def after(self, message: Message | None) -> QuorumRecords:
        """Return what counts after one more control record."""
        if isinstance(message, KRaftVersionRecord):
            return self._replace(kraft_version=message)
        if isinstance(message, VotersRecord):
            return self._replace(voters=message)
        return self

    def messages(self) -> list[Message]:
        """Return the records there are."""
        return [each for each in self if each is not None]


_TYPES: dict[ControlType, type[Message]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}
_NUMBERS = {message: number for number, message in _TYPES.items()}


def control_batch(
    messages: Sequence[Message], now_ms: int, *, base_offset: int = 0, leader_epoch: int = -1
) -> bytearray:
    """Return a control batch with these records, each in version 0."""
    return build_batch(
        [
            (_KEY.pack(0, _NUMBERS[type(each)]), encoder(type(each), 0)(each), now_ms, ())
            for each in messages
        ],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        is_control=True,
    )


def decode_control(record: Record) -> Message | None:
    """Return the message in a control record, None if its type is of a later version."""
    kind = _TYPES.get(control_type(record.key))
    if kind is None:
        return None
    value = record.value or b""
    if len(value) < _VERSION.size:
        raise MetadataError(f"a {kind.__name__} of {len(value)} bytes")
    # A newer version may only add fields.
    version = min(_VERSION.unpack_from(value)[0], kind.MAX_VERSION)
    try:
        message, _ = decoder(kind, version)(value, 0, len(value))
    except DecodeError as error:
        raise MetadataError(f"a damaged {kind.__name__}: {error}") from error
    return message
