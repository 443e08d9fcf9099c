"""What a controller refuses of the requests of its peers before the quorum sees it."""

from __future__ import annotations

import pytest

from ottla.controller.node_limits import MOST_CHARACTERS, MOST_ITEMS
from ottla.controller.quorum.replies_to_wire import add_voter, update_voter
from ottla.model.errors import ApiError
from ottla.wire.messages import add_raft_voter as add
from ottla.wire.messages import update_raft_voter as update


def test_a_voter_has_few_listeners() -> None:
    """They are in the voter set of every node, and in the response to DescribeQuorum."""
    request = add.AddRaftVoterRequest(
        voter_id=2, listeners=[add.Listener(name=str(n)) for n in range(MOST_ITEMS)]
    )
    assert len(add_voter(request, 1).endpoints) == MOST_ITEMS
    request.listeners.append(add.Listener(name="one more"))
    with pytest.raises(ApiError, match="more than 256 items"):
        add_voter(request, 1)
    with pytest.raises(ApiError, match="more than 256 items"):
        update_voter(
            update.UpdateRaftVoterRequest(listeners=[update.Listener()] * (MOST_ITEMS + 1)), 0
        )


def test_a_voter_has_short_names() -> None:
    listener = add.Listener(name="x" * (MOST_CHARACTERS // 2), host="y" * (MOST_CHARACTERS // 2))
    request = add.AddRaftVoterRequest(voter_id=2, listeners=[listener])
    assert len(add_voter(request, 1).endpoints) == 1
    listener.host += "y"
    with pytest.raises(ApiError, match="names of over 8192 characters"):
        add_voter(request, 1)
