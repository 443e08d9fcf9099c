"""Control records of the metadata log and of snapshots (KIP-595, KIP-630, KIP-853).

Their values are laid out like messages, with their version in front.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from ottla.metadata.serde import MetadataError
from ottla.records.control import ControlType, control_type
from ottla.records.record import Record, build_batch
from ottla.wire.codec import DecodeError, decoder, encoder
from ottla.wire.message import Message
from ottla.wire.messages.k_raft_version_record import KRaftVersionRecord
from ottla.wire.messages.leader_change_message import LeaderChangeMessage
from ottla.wire.messages.snapshot_footer_record import SnapshotFooterRecord
from ottla.wire.messages.snapshot_header_record import SnapshotHeaderRecord
from ottla.wire.messages.voters_record import VotersRecord

_KEY = Struct(">hh")
_VERSION = Struct(">h")


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
