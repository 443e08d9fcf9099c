"""The settings of the quorum, with Kafka's names and defaults."""

from __future__ import annotations

from ottla.model.value import Value


class QuorumConfig(Value):
    """The `controller.quorum.*` settings that the state machine needs."""

    election_timeout_ms: int = 1_000
    """How long to wait for an election; jitter of up to the same time is added."""
    election_backoff_max_ms: int = 1_000
    """The longest wait of a successor that a resigning leader named."""
    fetch_timeout_ms: int = 2_000
    """How long a follower waits for its leader, and (1.5 times) a leader for its followers."""
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 8 * 1024 * 1024
    fetch_snapshot_max_bytes: int = 8 * 1024 * 1024
    first_election_ms: int = 0
    """How long a voter waits for a leader in the first `election_timeout_ms` after its start, times
    its place among the ids of the voters, so that nodes that start together elect soon. With 0 it
    waits as long as later."""
