"""What a controller refuses of the requests of its peers before the quorum sees it."""

from __future__ import annotations

import pytest

from ottla.controller.quorum.replies_to_wire import MOST_LISTENERS, add_voter, update_voter
from ottla.model.errors import ApiError
from ottla.wire.messages import add_raft_voter as add
from ottla.wire.messages import update_raft_voter as update


def test_a_voter_has_few_listeners() -> None:
    """They are in the voter set of every node, and in the response to DescribeQuorum."""
    request = add.AddRaftVoterRequest(
        voter_id=2, listeners=[add.Listener(name=str(n)) for n in range(MOST_LISTENERS)]
    )
    assert len(add_voter(request, 1).endpoints) == MOST_LISTENERS
    request.listeners.append(add.Listener(name="one more"))
    with pytest.raises(ApiError, match="more than 256 listeners"):
        add_voter(request, 1)
    with pytest.raises(ApiError, match="more than 256 listeners"):
        update_voter(
            update.UpdateRaftVoterRequest(listeners=[update.Listener()] * (MOST_LISTENERS + 1)), 0
        )
