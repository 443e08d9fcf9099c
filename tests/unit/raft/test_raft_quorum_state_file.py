"""Kafka's `quorum-state` file, written and read."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ottla.raft.election import ElectionState
from ottla.raft.quorum_state_file import decode, encode
from ottla.raft.voters import ReplicaKey

DIRECTORY = bytes(range(16))


def test_static_voters_write_version_0() -> None:
    content = encode(ElectionState(3, 2), 0, (1, 2))
    assert content == (
        b'{"clusterId":"","leaderId":2,"leaderEpoch":3,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}'
    )


def test_dynamic_voters_write_version_1() -> None:
    content = encode(ElectionState(3, None, ReplicaKey(2, DIRECTORY)), 1, (1, 2))
    assert content == (
        b'{"leaderId":-1,"leaderEpoch":3,"votedId":2,'
        b'"votedDirectoryId":"AAECAwQFBgcICQoLDA0ODw","data_version":1}'
    )


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("leader_id", [None, 4])
@pytest.mark.parametrize("voted", [None, ReplicaKey(7), ReplicaKey(7, DIRECTORY)])
def test_what_is_written_is_read(
    version: int, leader_id: int | None, voted: ReplicaKey | None
) -> None:
    election = ElectionState(9, leader_id, voted)
    expected = election
    if version == 0 and voted:
        expected = election._replace(voted=ReplicaKey(7))
    assert decode(encode(election, version, (4, 7))) == expected


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"data_version":7}', b'{"data_version":0,"leaderId":1}']
)
def test_a_damaged_file_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode(content)


def test_its_own_text_is_read_without_the_json_library() -> None:
    state = ElectionState(7, 3, ReplicaKey(3))
    script = (
        "import sys; from ottla.raft.quorum_state_file import decode\n"
        f"print(decode({encode(state, 0, (1, 2, 3))!r})); print('json' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [repr(state), "False"]


@pytest.mark.parametrize(
    "content",
    [
        b'{"clusterId":"","leaderId":x,"leaderEpoch":1,"votedId":1,"data_version":0}',
        b'{"clusterId":"","data_version":0}',
        b'{"clusterId":"","leaderId":1,"other":1,"votedId":1,"data_version":0}',
    ],
)
def test_a_damaged_text_that_begins_like_its_own_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(content)
