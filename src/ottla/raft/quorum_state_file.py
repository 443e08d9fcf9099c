"""The text of Kafka's `quorum-state` file: the election state as JSON.

With kraft.version 0 Kafka writes data version 0, which names the voters too and has no
directory ids; with 1 it writes data version 1. The file is written under another name,
flushed and renamed; that is the driver's work.
"""

from __future__ import annotations

from typing import Any

from ottla.model.ids import ZERO_UUID, uuid_from_text, uuid_to_text
from ottla.raft.election import ElectionState
from ottla.raft.voters import ReplicaKey

FILE_NAME = "quorum-state"
NOBODY = -1
_OWN_BEGINNING = '{"clusterId":"",'
_OWN_END = '"data_version":0}'
_OWN_NUMBERS = frozenset({"leaderId", "leaderEpoch", "votedId"})


def encode(election: ElectionState, kraft_version: int, voter_ids: tuple[int, ...]) -> bytes:
    """Return the content of the file."""
    leader_id = NOBODY if election.leader_id is None else election.leader_id
    voted = election.voted or ReplicaKey(NOBODY)
    # Written by hand: every broker does this when it starts, and `json` takes a while to import.
    if kraft_version == 0:
        voters = ",".join(f'{{"voterId":{voter_id}}}' for voter_id in voter_ids)
        text = (
            f'{{"clusterId":"","leaderId":{leader_id},"leaderEpoch":{election.epoch},'
            f'"votedId":{voted.id},"appliedOffset":0,"currentVoters":[{voters}],"data_version":0}}'
        )
    else:
        directory_id = uuid_to_text(voted.directory_id or ZERO_UUID)
        text = (
            f'{{"leaderId":{leader_id},"leaderEpoch":{election.epoch},"votedId":{voted.id},'
            f'"votedDirectoryId":"{directory_id}","data_version":1}}'
        )
    return text.encode()


def _own_fields(content: bytes) -> dict[str, Any] | None:
    """Return the numbers of a file as `encode` writes it for kraft.version 0, else None.

    A broker on its own reads one whenever it starts, and `json` takes a while to import.
    """
    text = content.decode("ascii", "replace")
    if not (text.startswith(_OWN_BEGINNING) and text.endswith(_OWN_END)):
        return None
    fields: dict[str, Any] = {"data_version": 0}
    for field in text[len(_OWN_BEGINNING) :].split(",")[:3]:
        name, _, number = field.partition(":")
        name = name.strip('"')
        if name not in _OWN_NUMBERS or not number.removeprefix("-").isdigit():
            return None
        fields[name] = int(number)
    return fields


def decode(content: bytes) -> ElectionState:
    """Return the election state in the file; raise ValueError if it holds none."""
    fields = _own_fields(content)
    if fields is None:
        import json

        fields = json.loads(content)
    try:
        version = fields["data_version"]
        if version not in (0, 1):
            raise ValueError(f"{FILE_NAME} has the unknown data_version {version!r}")
        directory_id = uuid_from_text(fields["votedDirectoryId"]) if version else ZERO_UUID
        voted_id, leader_id = int(fields["votedId"]), int(fields["leaderId"])
        return ElectionState(
            int(fields["leaderEpoch"]),
            None if leader_id == NOBODY else leader_id,
            None
            if voted_id == NOBODY
            else ReplicaKey(voted_id, None if directory_id == ZERO_UUID else directory_id),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{FILE_NAME} is damaged: {content[:200]!r}") from error
