"""Workloads of consumer groups on a running broker: commits, heartbeats, a large group that starts.

Each runs once without measurement in `prepare`, because the warm-up of the brokers has no groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

from harness.load import run_load
from harness.native import group_raw, group_settle
from harness.scale import Scale
from harness.target import Target
from harness.works import Figures, OneTopic, Work

COMMIT_CONNECTIONS = 8
COMMIT_DEPTH = 8
HEARTBEAT_MEMBERS = 20
HEARTBEATS_PER_S = 2000
SETTLING_MEMBERS = 100
SETTLING_PARTITIONS = 1000


@dataclass(frozen=True)
class GroupWork(OneTopic):
    """The base of these workloads."""

    def prepare(self, target: Target) -> None:
        """Create the topic, and run the load once."""
        super().prepare(target)
        self.measure(target)

    def measure(self, target: Target) -> Figures:
        """Run the load once."""
        raise NotImplementedError


@dataclass(frozen=True)
class Commits(GroupWork):
    """Commits of one partition each, over a few connections, several in flight on each."""

    def measure(self, target: Target) -> Figures:
        """Return the acknowledged commits per second."""
        done = run_load(
            group_raw(), target, "commit", target.port, self.name, COMMIT_CONNECTIONS,
            COMMIT_DEPTH, self.scale.load_warm_s, self.scale.load_s,
        )  # fmt: skip
        return {
            self.name: done["requests_per_s"],
            "_p50_us": done["p50_us"],
            "_p99_us": done["p99_us"],
            "_cpu_us": done["cpu_s"] / done["requests"] * 1e6,
        }


@dataclass(frozen=True)
class Heartbeats(GroupWork):
    """Members, each alone in a group, that send heartbeats at a rate that any broker can handle.

    The name of the workload is the mode of the generator, which selects the protocol.
    """

    def measure(self, target: Target) -> Figures:
        """Return the broker's CPU microseconds per heartbeat, including its idle load."""
        done = run_load(
            group_raw(), target, self.name, target.port, self.name, HEARTBEAT_MEMBERS,
            HEARTBEATS_PER_S, self.scale.load_warm_s, self.scale.load_s,
        )  # fmt: skip
        return {
            self.name: done["cpu_s"] / done["requests"] * 1e6,
            "_per_s": done["requests_per_s"],
        }


@dataclass(frozen=True)
class Settling(GroupWork):
    """A group of librdkafka consumers that start together, in one of the two protocols."""

    partitions: int = SETTLING_PARTITIONS
    protocol: str = "classic"

    def measure(self, target: Target) -> Figures:
        """Return the seconds until every member has its partitions.

        `group.initial.rebalance.delay.ms` has its default.
        """
        group = f"{self.name}-{uuid4().hex[:8]}"
        done = run_load(
            group_settle(), target, target.port, self.name, self.partitions, group,
            self.protocol, SETTLING_MEMBERS,
        )  # fmt: skip
        return {self.name: done["seconds"], "_cpu_s": done["cpu_s"]}


def group_works(scale: Scale) -> list[Work]:
    """Return these workloads in the order of the table."""
    return [
        Commits("commit", scale),
        Heartbeats("heartbeat", scale),
        Heartbeats("heartbeat-consumer", scale),
        Settling("settle-classic", scale, protocol="classic"),
        Settling("settle-consumer", scale, protocol="consumer"),
    ]
