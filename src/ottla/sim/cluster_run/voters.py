"""An administrator who adds controllers to the voters of the quorum and removes them (KIP-853)."""

from __future__ import annotations

from random import Random as Generator
from typing import Any, Final, Protocol

from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.raft.voters import VoterSet
from ottla.sim.cluster import CLUSTER_ID, CONTROLLER, CONTROLLER_PORT, host_of
from ottla.sim.cluster_run.clients import ClusterClient, ClusterRunOfClients
from ottla.sim.network.exchange import Exchange, Violation
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest

FEWEST: Final = 3
"""How many voters there are at least, so that one may fail."""
_TIMEOUT_MS: Final = 2000
_EXPECTED: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.DUPLICATE_VOTER,
        ErrorCode.VOTER_NOT_FOUND,
    }
)


class ClusterRunOfVoters(ClusterRunOfClients, Protocol):
    """What this administrator asks of the run."""

    def quorum(self) -> tuple[int, VoterSet] | None:
        """Return the leader of the quorum and the voters that it knows, None without one."""
        ...

    def directory_of(self, number: int) -> bytes | None:
        """Return the directory id of a controller, None if it does not run."""
        ...


class VoterAdmin(ClusterClient):
    """Changes one voter after the other. It does not try again."""

    THINK_MS = (100.0, 300.0, 1000.0)
    environment: ClusterRunOfVoters

    def __init__(
        self, name: str, environment: ClusterRunOfVoters, chance: Generator, controllers: int
    ) -> None:
        super().__init__(name, environment, chance)
        self._controllers = range(1, controllers + 1)
        self.is_finished = False
        """Set when nothing is to be changed any more."""
        self.changes = 0
        """How many changes have succeeded."""

    def act(self) -> None:
        found = None if self.is_finished else self.environment.quorum()
        if found is None:
            return
        leader, voters = found
        if leader != self.broker:
            self.hang_up()
            self.broker = leader
            return
        if len(voters.ids) > FEWEST and self.chance.random() < 0.7:
            self._remove(voters)
        else:
            self._add(voters)

    def _remove(self, voters: VoterSet) -> None:
        voter = voters.get(self.chance.choice(sorted(voters.ids)))
        assert voter is not None
        request = RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            voter_id=voter.key.id,
            voter_directory_id=voter.key.directory_id or ZERO_UUID,
        )
        self.ask(request, 0)

    def _add(self, voters: VoterSet) -> None:
        others = [number for number in self._controllers if number not in voters.ids]
        number = self.chance.choice(others) if others else 0
        directory_id = self.environment.directory_of(number) if number else None
        if directory_id is None:
            return
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            timeout=_TIMEOUT_MS,
            voter_id=number,
            voter_directory_id=directory_id,
            listeners=[Listener(name=CONTROLLER, host=host_of(number), port=CONTROLLER_PORT)],
        )
        self.ask(request, 1)

    def choose(self) -> None:
        """Stay with the leader of the quorum, as far as it is known."""

    def received(self, exchange: Exchange) -> None:
        super().received(exchange)
        reply: Any = exchange.reply
        if reply.error_code not in _EXPECTED:
            name = ErrorCode(reply.error_code).name
            raise Violation(f"{exchange!r}: answered with {name}: {reply.error_message}")
        self.changes += not reply.error_code
