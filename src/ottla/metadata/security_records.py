"""Records about users, permissions, tokens and quotas, as Kafka's schemas lay them out.

Ottla does not act on them yet. It keeps them, so that the nodes of Apache Kafka in the same
cluster find them in the snapshots that an Ottla node writes. This module is imported with the
first of them.
"""

from __future__ import annotations

from ottla.model.ids import ZERO_UUID
from ottla.wire.message import Field, Items, Message, as_list


class AccessControlEntryRecord(Message):
    """A permission was granted or denied."""

    __slots__ = (
        "host",
        "id",
        "operation",
        "pattern_type",
        "permission_type",
        "principal",
        "resource_name",
        "resource_type",
    )
    API_KEY = 18
    MIN_VERSION = 0
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (
        Field("id", "uuid", (0, 0)),
        Field("resource_type", "int8", (0, 0)),
        Field("resource_name", "string", (0, 0)),
        Field("pattern_type", "int8", (0, 0)),
        Field("principal", "string", (0, 0)),
        Field("host", "string", (0, 0)),
        Field("operation", "int8", (0, 0)),
        Field("permission_type", "int8", (0, 0)),
    )

    def __init__(
        self,
        *,
        id: bytes = ZERO_UUID,
        resource_type: int = 0,
        resource_name: str = "",
        pattern_type: int = 0,
        principal: str = "",
        host: str = "",
        operation: int = 0,
        permission_type: int = 0,
    ) -> None:
        self.id = id
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.pattern_type = pattern_type
        self.principal = principal
        self.host = host
        self.operation = operation
        self.permission_type = permission_type


class RemoveAccessControlEntryRecord(Message):
    """A permission was removed."""

    __slots__ = ("id",)
    API_KEY = 19
    MIN_VERSION = 0
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (Field("id", "uuid", (0, 0)),)

    def __init__(self, *, id: bytes = ZERO_UUID) -> None:
        self.id = id


class UserScramCredentialRecord(Message):
    """A user has a password for one SCRAM mechanism."""

    __slots__ = ("iterations", "mechanism", "name", "salt", "server_key", "stored_key")
    API_KEY = 11
    MIN_VERSION = 0
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (
        Field("name", "string", (0, 0)),
        Field("mechanism", "int8", (0, 0)),
        Field("salt", "bytes", (0, 0)),
        Field("stored_key", "bytes", (0, 0)),
        Field("server_key", "bytes", (0, 0)),
        Field("iterations", "int32", (0, 0)),
    )

    def __init__(
        self,
        *,
        name: str = "",
        mechanism: int = 0,
        salt: bytes = b"",
        stored_key: bytes = b"",
        server_key: bytes = b"",
        iterations: int = 0,
    ) -> None:
        self.name = name
        self.mechanism = mechanism
        self.salt = salt
        self.stored_key = stored_key
        self.server_key = server_key
        self.iterations = iterations


class RemoveUserScramCredentialRecord(Message):
    """A user has no password for one SCRAM mechanism any more."""

    __slots__ = ("mechanism", "name")
    API_KEY = 22
    MIN_VERSION = 0
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (Field("name", "string", (0, 0)), Field("mechanism", "int8", (0, 0)))

    def __init__(self, *, name: str = "", mechanism: int = 0) -> None:
        self.name = name
        self.mechanism = mechanism


class DelegationTokenRecord(Message):
    """A delegation token was made or renewed."""

    __slots__ = (
        "expiration_timestamp",
        "issue_timestamp",
        "max_timestamp",
        "owner",
        "renewers",
        "requester",
        "token_id",
    )
    API_KEY = 10
    MIN_VERSION = 0
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (
        Field("owner", "string", (0, 0)),
        Field("requester", "string", (0, 0)),
        Field("renewers", "array", (0, 0), of="string"),
        Field("issue_timestamp", "int64", (0, 0)),
        Field("max_timestamp", "int64", (0, 0)),
        Field("expiration_timestamp", "int64", (0, 0)),
        Field("token_id", "string", (0, 0)),
    )

    def __init__(
        self,
        *,
        owner: str = "",
        requester: str = "",
        renewers: Items[str] = (),
        issue_timestamp: int = 0,
        max_timestamp: int = 0,
        expiration_timestamp: int = 0,
        token_id: str = "",
    ) -> None:
        self.owner = owner
        self.requester = requester
        self.renewers = as_list(renewers)
        self.issue_timestamp = issue_timestamp
        self.max_timestamp = max_timestamp
        self.expiration_timestamp = expiration_timestamp
        self.token_id = token_id


class RemoveDelegationTokenRecord(Message):
    """A delegation token was removed."""

    __slots__ = ("token_id",)
    API_KEY = 26
    MIN_VERSION = 0
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (Field("token_id", "string", (0, 0)),)

    def __init__(self, *, token_id: str = "") -> None:
        self.token_id = token_id


class EntityData(Message):
    __slots__ = ("entity_name", "entity_type")
    FIELDS = (
        Field("entity_type", "string", (0, 0)),
        Field("entity_name", "string", (0, 0), nullable=(0, 0)),
    )

    def __init__(self, *, entity_type: str = "", entity_name: str | None = "") -> None:
        self.entity_type = entity_type
        self.entity_name = entity_name


class ClientQuotaRecord(Message):
    """A quota of users or clients was set or removed."""

    __slots__ = ("entity", "key", "remove", "value")
    API_KEY = 14
    MIN_VERSION = 0
    MAX_VERSION = 0
    FIRST_FLEXIBLE_VERSION = 0
    FIELDS = (
        Field("entity", "array", (0, 0), of=EntityData),
        Field("key", "string", (0, 0)),
        Field("value", "float64", (0, 0)),
        Field("remove", "bool", (0, 0)),
    )

    def __init__(
        self,
        *,
        entity: Items[EntityData] = (),
        key: str = "",
        value: float = 0.0,
        remove: bool = False,
    ) -> None:
        self.entity = as_list(entity)
        self.key = key
        self.value = value
        self.remove = remove


_RECORDS: tuple[type[Message], ...] = (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    UserScramCredentialRecord,
    RemoveUserScramCredentialRecord,
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
    ClientQuotaRecord,
)
SECURITY_RECORDS: dict[int, type[Message]] = {record.API_KEY: record for record in _RECORDS}
