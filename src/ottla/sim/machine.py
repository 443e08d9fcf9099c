"""One machine: its clock, its disk, and the broker's processes on it, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from random import Random as Generator

from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.model.ids import TopicPartition
from ottla.ports import Ports
from ottla.sim.background import DeferredBackground
from ottla.sim.chance import SeededRandom, generator
from ottla.sim.clock import VirtualClock
from ottla.sim.disk import SimDisk
from ottla.sim.edge import SimEdge
from ottla.sim.faults import DiskFaults
from ottla.sim.helpers import PromptHelpers
from ottla.sim.profile import Profile

LISTENER = "PLAINTEXT"


class Machine:
    """`start` makes a process; `stop`, `kill` and `lose_power` end it."""

    def __init__(self, seed: int, profile: Profile) -> None:
        self._profile = profile
        self._random = SeededRandom(generator(seed, "node"))
        self._edge_chance: Generator = generator(seed, "edge")
        self.clock = VirtualClock()
        self.faults = DiskFaults(generator(seed, "faults"), profile.log_dirs)
        self.disk = SimDisk(self.clock, generator(seed, "disk"), self.faults)
        self._make_directories()
        self.reports: list[str] = []
        self.background = DeferredBackground()
        self.on_submit: Callable[[], None] = _nothing
        """Hears that there is new work for the background."""
        self.on_result: Callable[[], None] = _nothing
        """Hears that there is a result for the loop."""
        self.node: Node | None = None
        self.edge: SimEdge | None = None

    def _make_directories(self) -> None:
        """The operator has made the log directories, long ago."""
        for path in self._profile.log_dirs:
            self.disk.make_dirs(path)
        self.disk.sync_dir("/")

    def start(self) -> None:
        """Start a broker on what the disk holds; Crash, or OSError when the disk fails it."""
        self.disk.restart()
        self.node = self.edge = None
        background = self.background = DeferredBackground()
        background.on_submit, background.on_result = self.on_submit, self.on_result
        config = BrokerConfig.from_properties(self._profile.properties)
        helpers = PromptHelpers()
        ports = Ports(
            self.disk, self.clock, self._random, background, self.reports.append, helpers=helpers
        )
        node = Node(
            config,
            config.advertised_listeners,
            ports,
            max_open_files=self._profile.max_open_files,
        )
        helpers.attach(node)
        node.start()
        self.node = node
        self.edge = SimEdge(node, background, self._edge_chance)

    def stop(self) -> None:
        """Stop the broker as SIGTERM does."""
        assert self.node is not None
        self.background.finish()
        self.node.shutdown()
        self.disk.kill()

    def kill(self) -> None:
        """Stop the broker as SIGKILL does."""
        self.disk.kill()

    def lose_power(self) -> dict[TopicPartition, int]:
        """Pull the plug; up to where the broker believed its logs to be on disk.

        Logs that were emptied are left out: what was removed need not have been there.
        """
        points: dict[TopicPartition, int] = {}
        if self.node is not None:
            for log in self.node.store:
                if log.recovery_point > log.log_start_offset:
                    points[log.topic_partition] = log.recovery_point
        self.disk.lose_power()
        return points

    def has_forgotten(self, topic: str, partition_index: int) -> bool:
        """Whether a failed sync has left something in a log that is not going to be on disk."""
        name = TopicPartition(topic, partition_index)
        return any(
            self.disk.has_forgotten(f"{path}/{name}")
            for path in self.holders(topic, partition_index)
        )

    def holders(self, topic: str, partition_index: int) -> list[str]:
        """The log directories that have a directory of this partition."""
        return [
            path
            for path in self._profile.log_dirs
            if self.disk.has(f"{path}/{TopicPartition(topic, partition_index)}")
        ]


def _nothing() -> None:
    """Nobody listens."""
