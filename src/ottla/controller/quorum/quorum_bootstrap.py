"""Begins a quorum that is not given by controller.quorum.voters, so that nobody formats anything.

Only the first of controller.quorum.bootstrap.servers does so, on an empty directory, and only when
each of the others has answered that it knows of no quorum either. Else a controller that lost its
disk would begin a second quorum. The first voter is alone; the others join it
(`broker/membership/quorum_auto_join.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.controller.quorum.peers import QuorumPeers
from ottla.raft.effects import Peer, Send
from ottla.raft.messages import AnyResponse, FetchRequest, FetchResponse
from ottla.raft.voters import ReplicaKey
from ottla.replication.timers import Timers

RETRY_MS: Final = 50
PATIENCE_MS: Final = 5_000
"""How long to wait before a message names those that have not answered."""


class QuorumBootstrap:
    """Asks the other controllers whether there is a quorum."""

    def __init__(
        self,
        local: ReplicaKey,
        others: tuple[Peer, ...],
        peers: QuorumPeers,
        timers: Timers,
        clock_ms: Callable[[], float],
        report: Callable[[str], None],
    ) -> None:
        self._local = local
        self._silent = {peer.id: peer for peer in others}
        """Those that have not answered yet."""
        self._peers = peers
        self._timers = timers
        self._clock_ms = clock_ms
        self._report = report
        self._done: Callable[[bool], None] | None = None

    def ask(self, done: Callable[[bool], None]) -> None:
        """Call `done` with True if nobody knows of a quorum, with False if somebody does."""
        self._done = done
        self._timers.at(self._clock_ms() + PATIENCE_MS, self._complain)
        self._ask_silent()

    def _ask_silent(self) -> None:
        if self._done is None:
            return
        if not self._silent:
            self._end(True)
            return
        for peer in list(self._silent.values()):
            self._ask(peer)
        self._timers.at(self._clock_ms() + RETRY_MS, self._ask_silent)

    def _ask(self, peer: Peer) -> None:
        request = FetchRequest(self._local, 0, 0, 0, None, 0, 0)

        def answered(result: AnyResponse | OSError) -> None:
            if not isinstance(result, FetchResponse) or self._done is None:
                return
            if result.epoch > 0 or result.leader_id is not None:
                self._end(False)
            else:
                self._silent.pop(peer.id, None)

        self._peers.send(Send(0, peer, request), answered)

    def _end(self, is_nobody: bool) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(is_nobody)

    def _complain(self) -> None:
        if self._done is not None:
            where = ", ".join(
                f"{each.host}:{each.port}"
                for peer in self._silent.values()
                for each in peer.endpoints
            )
            self._report(
                "this controller is empty, and begins a new cluster when all of"
                f" controller.quorum.bootstrap.servers are there: it waits for {where}"
            )
