"""Records of Kafka's security: Ottla keeps them and hands them on in snapshots."""

from __future__ import annotations

import pytest

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.image_difference import difference
from ottla.metadata.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    EntityData,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.metadata.snapshot import image_records
from ottla.wire.message import Message

ACL = AccessControlEntryRecord(
    id=b"a" * 16, resource_type=2, resource_name="t", pattern_type=3, principal="User:u", host="*",
    operation=3, permission_type=3,
)  # fmt: skip
PASSWORD = UserScramCredentialRecord(
    name="u", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
)
TOKEN = DelegationTokenRecord(
    owner="User:u", requester="User:r", renewers=["User:v"], issue_timestamp=1, max_timestamp=5,
    expiration_timestamp=3, token_id="id",
)  # fmt: skip
ENTITY = [
    EntityData(entity_type="user", entity_name=None),
    EntityData(entity_type="client-id", entity_name="c"),
]
QUOTA = ClientQuotaRecord(entity=ENTITY, key="producer_byte_rate", value=1024.5)
REMOVALS: list[tuple[Message, Message]] = [
    (ACL, RemoveAccessControlEntryRecord(id=b"a" * 16)),
    (PASSWORD, RemoveUserScramCredentialRecord(name="u", mechanism=1)),
    (TOKEN, RemoveDelegationTokenRecord(token_id="id")),
    (
        QUOTA,
        ClientQuotaRecord(
            entity=[ENTITY[1], ENTITY[0]], key="producer_byte_rate", value=0.0, remove=True
        ),
    ),
]
ALL = [kept for kept, _ in REMOVALS]

SECURITY_GOLDEN = {
    "acl": (ACL, "01 12 00" + "61" * 16 + "02 0274 03 07557365723a75 022a 03 03 00"),
    "acl removed": (REMOVALS[0][1], "01 13 00" + "61" * 16 + "00"),
    "password": (PASSWORD, "01 0b 00 0275 01 0273 026b 0276 00001000 00"),
    "password removed": (REMOVALS[1][1], "01 16 00 0275 01 00"),
    "token": (
        TOKEN,
        "01 0a 00 07557365723a75 07557365723a72 02 07557365723a76 0000000000000001"
        "0000000000000005 0000000000000003 036964 00",
    ),
    "token removed": (REMOVALS[2][1], "01 1a 00 036964 00"),
    "quota": (
        QUOTA,
        "01 0e 00 03 0575736572 00 00 0a636c69656e742d6964 0263 00"
        "1370726f64756365725f627974655f72617465 4090020000000000 00 00",
    ),
}
"""The records as bytes that Kafka 4.3's own classes wrote."""


def image_of(*records: Message) -> MetadataImage:
    return MetadataDelta(MetadataImage()).replay_all(records).apply()


def test_a_snapshot_has_all_of_them() -> None:
    assert list(image_records(image_of(*ALL))) == ALL


@pytest.mark.parametrize(("kept", "removal"), REMOVALS)
def test_what_is_removed_is_gone(kept: Message, removal: Message) -> None:
    image = MetadataDelta(image_of(*ALL)).replay_all([removal]).apply()
    assert list(image_records(image)) == [each for each in ALL if each is not kept]


def test_a_later_record_replaces_the_earlier_one() -> None:
    higher = ClientQuotaRecord(entity=ENTITY, key="producer_byte_rate", value=2048.0)
    assert list(image_of(QUOTA, higher).security.values()) == [higher]


@pytest.mark.parametrize(("kept", "removal"), REMOVALS)
def test_the_difference_of_images_has_them(kept: Message, removal: Message) -> None:
    full, less = image_of(*ALL), image_of(*[each for each in ALL if each is not kept])
    assert difference(full, less).apply().security == less.security
    assert difference(less, full).apply().security == full.security
    assert difference(full, full).security is None
