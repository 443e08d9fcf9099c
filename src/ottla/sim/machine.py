"""One machine: its clock, its disk, and the broker's processes on it, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from random import Random as Generator
from typing import Final

from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.coordinator.runtime.partitioner import partition_of
from ottla.model.ids import OFFSETS_TOPIC, TopicPartition
from ottla.network.peers import Peers
from ottla.network.stream import Connector
from ottla.ports import Ports
from ottla.raft.voters import Endpoint
from ottla.sim.background import DeferredBackground
from ottla.sim.clock import VirtualClock
from ottla.sim.disk.disk import SimDisk
from ottla.sim.disk.faults import DiskFaults
from ottla.sim.helpers import PromptHelpers
from ottla.sim.network.event_loop import SimLoop
from ottla.sim.object_store import SharedObjects
from ottla.sim.profile import Profile
from ottla.sim.seeded_random import SeededRandom, generator

LISTENER: Final = "PLAINTEXT"
LARGEST_RESPONSE: Final = 8 * 1024 * 1024


class Machine:
    """`start` makes a process; `stop`, `kill` and `lose_power` end it."""

    def __init__(self, seed: int, profile: Profile, *, boot_ms: float = 0.0) -> None:
        self._profile = profile
        self.make_connector: Callable[[], Connector] = _no_connector
        self.remote_tier: SharedObjects | None = None
        """The object store of the remote tier, if the broker has one."""
        self._random = SeededRandom(generator(seed, "node"))
        self._network_chance: Generator = generator(seed, "network")
        self.clock = VirtualClock(boot_ms=boot_ms)
        self.faults = DiskFaults(generator(seed, "faults"), profile.log_dirs)
        self.disk = SimDisk(self.clock, generator(seed, "disk"), self.faults)
        self._make_directories()
        self.reports: list[str] = []
        self.background = DeferredBackground()
        self.on_submit: Callable[[], None] = _nothing
        """Called when there is new work for the background."""
        self.on_result: Callable[[], None] = _nothing
        """Called when there is a result for the loop."""
        self.node: Node | None = None
        self.loop: SimLoop | None = None

    def _make_directories(self) -> None:
        """Make the log directories, durably, as an operator has done."""
        for path in self._profile.log_dirs:
            self.disk.make_dirs(path)
        self.disk.sync_dir("/")

    def start(self) -> None:
        """Start a broker on what the disk holds; Crash, or OSError when the disk fails it."""
        self.disk.restart()
        self.node = self.loop = None
        background = self.background = DeferredBackground()
        background.on_submit, background.on_result = self.on_submit, self.on_result
        config = BrokerConfig.from_properties(self._profile.properties)
        peers = Peers(self.make_connector, self._random, LARGEST_RESPONSE)
        helpers = PromptHelpers()
        ports = Ports(
            self.disk,
            self.clock,
            self._random,
            background,
            self.reports.append,
            network=peers,
            helpers=helpers,
            object_store=None if self.remote_tier is None else self.remote_tier.open(background),
        )
        node = Node(
            config,
            config.network.advertised_listeners,
            ports,
            controller_endpoints=[
                Endpoint(each.listener_name, each.host, each.port)
                for each in config.network.controller_listener_names
            ],
            max_open_files=self._profile.max_open_files,
        )
        helpers.attach(node)
        node.start()
        self.node = node
        self.loop = SimLoop(node, background, self._network_chance, self._profile.queued_max_bytes)
        self.loop.end_process = self.disk.kill
        peers.attach(self.loop.engine)

    def wipe(self) -> None:
        """Lose everything on disk, as with a new disk."""
        self.disk.wipe()
        self._make_directories()
        self.disk.kill()

    def begin_pauses(self) -> None:
        """Let long work pause after every step from now on, if this seed says so.

        The clock stands still while the broker works, so no work would pause by itself.
        """
        assert self.node is not None
        if self._profile.pauses:
            self.node.sliced_work.slice_ms = 0.0

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
        """Lose power; return up to where the broker believed its logs to be on disk.

        Logs that were emptied are left out: what was removed need not have been there.
        """
        points: dict[TopicPartition, int] = {}
        if self.node is not None:
            for log in self.node.store:
                if log.recovery_point > log.log_start_offset:
                    points[log.topic_partition] = log.recovery_point
        self.disk.lose_power()
        return points

    def offsets_partition(self, group_id: str) -> TopicPartition:
        """Return the partition of __consumer_offsets that a group belongs to."""
        count = int(self._profile.properties["offsets.topic.num.partitions"])
        return TopicPartition(OFFSETS_TOPIC, partition_of(group_id, count))

    def offsets_log_end(self, group_id: str) -> int:
        """Return where the log that has the offsets of a group ends."""
        assert self.node is not None
        log = self.node.store.get(self.offsets_partition(group_id))
        return 0 if log is None else log.log_end_offset

    def has_forgotten(self, topic: str, partition_index: int) -> bool:
        """Return whether a failed sync has left something in a log that will never be on disk."""
        name = TopicPartition(topic, partition_index)
        return any(
            self.disk.has_forgotten(f"{path}/{name}")
            for path in self.holders(topic, partition_index)
        )

    def holders(self, topic: str, partition_index: int) -> list[str]:
        """Return the log directories that have a directory of this partition."""
        return [
            path
            for path in self._profile.log_dirs
            if self.disk.has(f"{path}/{TopicPartition(topic, partition_index)}")
        ]


def _nothing() -> None:
    """Do nothing: nobody listens."""


def _no_connector() -> Connector:
    raise AssertionError("this machine has no network to other brokers")
