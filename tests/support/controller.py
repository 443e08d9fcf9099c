"""A controller on files in memory, whose background works when it is told to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.config.topic import LogConfig
from ottla.controller.metadata_log import METADATA_LOG_CONFIG
from ottla.controller.metadata_snapshots import SnapshotConfig
from ottla.controller.quorum_controller import QuorumController
from ottla.log.file_pool import FilePool
from ottla.log.resources import Resources
from ottla.log.startup.open_log import Checkpoint, create_log, open_log
from ottla.memory_files import MemoryFiles
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import NoOpRecord, TopicRecord
from ottla.model.errors import ApiError
from ottla.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, TopicPartition
from ottla.ports import Files
from ottla.raft.voters import ReplicaKey
from ottla.testing.fakes import FakeClock, FakeRandom, QueuedBackground
from ottla.testing.faulty_files import FaultyFiles
from ottla.wire.message import Message

PARTITION = TopicPartition(METADATA_TOPIC, 0)
DIRECTORY = "/data/__cluster_metadata-0"
LOCAL = ReplicaKey(1, b"d" * 16)
NEVER = SnapshotConfig(max_record_bytes=2**62, max_interval_ms=0)


def topic(number: int) -> TopicRecord:
    return TopicRecord(name=f"topic-{number}", topic_id=number.to_bytes(16, "big"))


class World:
    """One controller after the other, on the same files."""

    def __init__(
        self,
        files: Files | None = None,
        *,
        directory: str = DIRECTORY,
        config: LogConfig = METADATA_LOG_CONFIG,
        snapshots: SnapshotConfig = NEVER,
        local: ReplicaKey = LOCAL,
    ) -> None:
        self.files = FaultyFiles(files or MemoryFiles())
        self.clock = FakeClock()
        self.directory = directory
        self.config = config
        self.snapshots = snapshots
        self.local = local
        self.notes: list[str] = []
        self.random = FakeRandom(lambda limit: limit - 1)
        self.start()

    def start(self, log_start_offset: int = 0, *, is_clean: bool = False) -> None:
        """Start as after a kill, or after a clean stop."""
        self.background = QueuedBackground()
        self.wake_up_ends: list[Callable[[], None]] = []
        self.published: list[list[str]] = []
        self.resources = Resources(
            self.files, FilePool(self.files), self.background, self.clock, self.random
        )
        if self.files.exists(self.directory):
            checkpoint = Checkpoint(is_clean, 0, log_start_offset)
            log = open_log(
                self.resources,
                self.directory,
                PARTITION,
                self.config,
                checkpoint=checkpoint,
                notes=self.notes,
            )
        else:
            log = create_log(
                self.resources, self.directory, PARTITION, METADATA_TOPIC_ID, self.config
            )
        self.controller = QuorumController(
            log, MetadataImage("cluster"), self.local, self.wake_up_ends.append, self.snapshots
        )
        self.controller.start()
        self.notes += self.resources.notes
        self.controller.publish = self._publish

    def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        assert image is self.controller.image
        self.published.append(delta.topics.created())

    def submit(self, *records: Message) -> list[ApiError | None]:
        """Submit a decision; the list that is returned gets its outcome."""
        outcome: list[ApiError | None] = []
        self.controller.submit(records, outcome.append)
        return outcome

    def end_wake_up(self) -> None:
        actions, self.wake_up_ends[:] = list(self.wake_up_ends), []
        for action in actions:
            action()

    def finish(self) -> None:
        """End the wake-up and do the work of the background."""
        self.end_wake_up()
        self.background.run()

    def register(self) -> World:
        """Write a first record, as a starting broker does; with it the epoch begins."""
        self.controller.write([NoOpRecord()])
        self.published.clear()
        return self

    def create(self, *numbers: int) -> None:
        """Create topics, each by a decision of its own, one after the other."""
        for number in numbers:
            outcome = self.submit(topic(number))
            self.finish()
            assert outcome == [None]

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def names(self, suffix: str) -> list[str]:
        names = (entry.name for entry in self.files.list(self.directory))
        return sorted(name for name in names if name.endswith(suffix))

    def topics(self) -> Sequence[str]:
        return list(self.controller.image.topics)

    @property
    def syncs(self) -> int:
        """How often the log itself was forced to disk."""
        return sum(path.endswith(".log") for path in self.files.synced)
