"""Whatever is asked of the controller: the image follows a model, and a restart finds it again."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.config.broker import BrokerConfig
from ottla.controller.brokers import lead_anew, register_broker
from ottla.controller.configs import DELETE, SET, ConfigChange, ConfigOperation
from ottla.controller.eligible_leaders import begin_cluster
from ottla.controller.metadata_log import METADATA_LOG_CONFIG
from ottla.controller.partitions import MorePartitions
from ottla.controller.producer_ids import allocate_producer_ids
from ottla.controller.quorum_controller import QuorumController
from ottla.controller.topics import NewTopic, UnwantedTopic
from ottla.log.file_pool import FilePool
from ottla.log.log import Log
from ottla.log.resources import Resources
from ottla.log.startup.open_log import Checkpoint, create_log, open_log
from ottla.memory_files import MemoryFiles
from ottla.metadata.image import MetadataImage, PartitionImage
from ottla.model.config_resources import ResourceType
from ottla.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, TopicPartition
from ottla.raft.voters import ReplicaKey
from ottla.testing.fakes import FakeClock, FakeRandom, InlineBackground
from tests.support.decisions import alter_configs, create_partitions, create_topics, delete_topics

CONFIG = BrokerConfig()
PARTITION = TopicPartition(METADATA_TOPIC, 0)
DIRECTORY = "/data/__cluster_metadata-0"


class World:
    """A controller on a disk in memory, and what it ought to know by now."""

    def __init__(self) -> None:
        files = MemoryFiles()
        self.random = FakeRandom(lambda limit: self.random.ids % limit)
        self.resources = Resources(
            files, FilePool(files), InlineBackground(), FakeClock(), self.random
        )
        self.partitions: dict[str, int] = {}
        self.configs = {"": {"min.insync.replicas": "1"}}  # with eligible leader replicas
        self.next_producer_id = 0
        self.controller = self._start(
            create_log(self.resources, DIRECTORY, PARTITION, METADATA_TOPIC_ID, METADATA_LOG_CONFIG)
        )
        self.controller.write(begin_cluster(self.image, CONFIG))
        self._register()

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    def create(self, name: str, count: int) -> None:
        decision = create_topics(self.image, CONFIG, self.random, [NewTopic(name, count)])
        self.controller.write(decision.records)
        collides = any(
            other != name and other.replace(".", "_") == name.replace(".", "_")
            for other in self.partitions
        )
        refused = name in self.partitions or collides or count == 0
        assert (decision.results[0].error is not None) == refused
        if not refused:
            self.partitions[name] = count

    def delete(self, name: str) -> None:
        decision = delete_topics(self.image, CONFIG, [UnwantedTopic(name)])
        self.controller.write(decision.records)
        assert (decision.results[0].error is None) == (name in self.partitions)
        self.partitions.pop(name, None)
        self.configs.pop(name, None)

    def grow(self, name: str, count: int) -> None:
        decision = create_partitions(self.image, self.random, [MorePartitions(name, count)])
        self.controller.write(decision.records)
        grows = count > self.partitions.get(name, count)
        assert (decision.results[0].error is None) == grows
        if grows:
            self.partitions[name] = count

    def configure(self, name: str, setting: str, value: str | None) -> None:
        operation = ConfigOperation(setting, DELETE if value is None else SET, value)
        change = ConfigChange(ResourceType.TOPIC, name, [operation])
        decision = alter_configs(self.image, CONFIG, [change])
        self.controller.write(decision.records)
        assert (decision.results[0].error is None) == (name in self.partitions)
        if name not in self.partitions:
            return
        configs = self.configs.setdefault(name, {})
        if value is None:
            configs.pop(setting, None)
        else:
            configs[setting] = value
        if not configs:
            del self.configs[name]

    def allocate(self) -> None:
        decision = allocate_producer_ids(self.image, 1, 0)
        self.controller.write(decision.records)
        assert decision.results[0].first == self.next_producer_id
        self.next_producer_id += decision.results[0].size

    def restart(self) -> None:
        before = _partitions(self.image)
        checkpoint = Checkpoint(is_clean=False)
        log = open_log(
            self.resources,
            DIRECTORY,
            PARTITION,
            METADATA_LOG_CONFIG,
            checkpoint=checkpoint,
            notes=[],
        )
        self.controller = self._start(log)
        assert _partitions(self.image) == before
        self._register()
        self.controller.write(lead_anew(self.image, 1))
        for name, partitions in _partitions(self.image).items():
            assert [p.leader_epoch for p in partitions] == [
                p.leader_epoch + 1 for p in before[name]
            ]

    def check(self) -> None:
        image = self.image
        assert {name: len(t.partitions) for name, t in image.topics.items()} == self.partitions
        assert {topic.name for topic in image.topics_by_id.values()} == set(self.partitions)
        assert {name: dict(configs) for (_, name), configs in image.configs.items()} == self.configs
        assert image.next_producer_id == self.next_producer_id

    def _start(self, log: Log) -> QuorumController:
        controller = QuorumController(
            log, MetadataImage(), ReplicaKey(1, b"d" * 16), lambda write: write()
        )
        controller.start()
        return controller

    def _register(self) -> None:
        self.controller.write(
            register_broker(
                broker_id=1,
                broker_epoch=self.controller.log.log_end_offset,
                incarnation_id=self.random.uuid(),
                endpoints=[],
                rack=None,
                log_dirs=[],
            )
        )


def _partitions(image: MetadataImage) -> dict[str, list[PartitionImage]]:
    return {name: list(topic.partitions) for name, topic in image.topics.items()}


NAMES = st.sampled_from(["a", "b.c", "b_c", "d"])
SETTINGS = st.sampled_from(["retention.ms", "segment.ms"])
STEPS = st.one_of(
    st.tuples(st.just("create"), NAMES, st.integers(0, 5)),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("grow"), NAMES, st.integers(0, 9)),
    st.tuples(st.just("configure"), NAMES, SETTINGS, st.sampled_from(["1", "2", None])),
    st.tuples(st.just("allocate")),
    st.tuples(st.just("restart")),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_the_image_follows_the_model_through_restarts(steps: list[tuple[str, ...]]) -> None:
    world = World()
    for name, *arguments in steps:
        getattr(world, name)(*arguments)
        world.check()
    world.restart()
    world.check()
