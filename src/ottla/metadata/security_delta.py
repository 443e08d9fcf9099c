"""Changes of permissions, passwords, tokens and quotas.

The image keeps the record that made each of them. Its key says what it is about: the number of
the record type, and what names the thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ottla.metadata.image import MetadataImage, SecurityKey
from ottla.metadata.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.metadata.serde import MetadataError
from ottla.wire.message import Message


class SecurityDelta:
    """What was set or removed since an image."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self.changed: dict[SecurityKey, Message | None] = {}
        """The new record of each; None for what is gone."""
        self._replay: dict[type[Message], Callable[[Any], None]] = {
            AccessControlEntryRecord: self._set,
            UserScramCredentialRecord: self._set,
            DelegationTokenRecord: self._set,
            ClientQuotaRecord: self._set_quota,
            RemoveAccessControlEntryRecord: self._remove,
            RemoveUserScramCredentialRecord: self._remove,
            RemoveDelegationTokenRecord: self._remove,
        }

    def replay(self, record: Message) -> None:
        """Add one record; raise MetadataError if it is not about security."""
        replay = self._replay.get(type(record))
        if replay is None:
            raise MetadataError(f"cannot apply a {type(record).__name__}")
        replay(record)

    def _set(self, record: Message) -> None:
        self.changed[_key(record)] = record

    def _set_quota(self, record: ClientQuotaRecord) -> None:
        self.changed[_key(record)] = None if record.remove else record

    def _remove(self, record: Message) -> None:
        self.changed[_key(record)] = None

    def security(self) -> Mapping[SecurityKey, Message]:
        """Return what there is after the delta."""
        merged = {**self._image.security, **self.changed}
        return {key: record for key, record in merged.items() if record is not None}


def security_difference(old: MetadataImage, new: MetadataImage) -> Iterator[Message]:
    """Return the records that lead from one image to another."""
    for key, record in old.security.items():
        if key not in new.security:
            yield _removal(record)
    for key, record in new.security.items():
        if old.security.get(key) != record:
            yield record


def _key(record: Message) -> SecurityKey:
    """Return the key of a record, or of the one that it removes."""
    if isinstance(record, AccessControlEntryRecord | RemoveAccessControlEntryRecord):
        return AccessControlEntryRecord.API_KEY, record.id
    if isinstance(record, UserScramCredentialRecord | RemoveUserScramCredentialRecord):
        return UserScramCredentialRecord.API_KEY, record.name, record.mechanism
    if isinstance(record, DelegationTokenRecord | RemoveDelegationTokenRecord):
        return DelegationTokenRecord.API_KEY, record.token_id
    assert isinstance(record, ClientQuotaRecord), f"{record} is not about security"
    entities = sorted((e.entity_type, e.entity_name is None, e.entity_name) for e in record.entity)
    return ClientQuotaRecord.API_KEY, record.key, *entities


def _removal(record: Message) -> Message:
    if isinstance(record, AccessControlEntryRecord):
        return RemoveAccessControlEntryRecord(id=record.id)
    if isinstance(record, UserScramCredentialRecord):
        return RemoveUserScramCredentialRecord(name=record.name, mechanism=record.mechanism)
    if isinstance(record, DelegationTokenRecord):
        return RemoveDelegationTokenRecord(token_id=record.token_id)
    assert isinstance(record, ClientQuotaRecord), f"{record} is not about security"
    return ClientQuotaRecord(entity=record.entity, key=record.key, remove=True)
