"""What kind of run a seed makes: how the broker is set up, who uses it, what goes wrong.

Each seed switches some things off altogether and turns others up, because a mixture of
everything rarely gets deep into anything.
"""

from __future__ import annotations

from random import Random as Generator
from typing import NamedTuple

from ottla.sim.seeded_random import generator


class Profile(NamedTuple):
    """The choices of one seed; rates are per 1,000 events."""

    log_dirs: tuple[str, ...]
    properties: dict[str, str]
    max_open_files: int
    producers: int
    idempotent_producers: int
    consumers: int
    admins: int
    probers: int
    noise: int
    pipelining: int
    most_records: int
    most_bytes: int
    slow_connections: float
    interleaving: float
    kill_rate: float
    power_rate: float
    clean_rate: float
    full_rate: float
    error_rate: float
    wall_step_rate: float
    queued_max_bytes: int
    classic_members: int
    consumer_members: int
    pauses: bool
    """Whether every step of long work has a wake-up of its own."""

    def topic_configs(self, chance: Generator) -> dict[str, str]:
        """Return settings for a new topic."""
        configs = {"internal.segment.bytes": str(chance.choice((400, 1500, 6000, 60_000)))}
        for name, values, probability in _TOPIC_CHOICES:
            if chance.random() < probability:
                configs[name] = chance.choice(values)
        if self.power_rate:
            # Compacted logs have holes by nature, so recovery does not cut them there.
            configs.pop("cleanup.policy", None)
        return configs


_TOPIC_CHOICES = (
    ("retention.ms", ("500", "5000", "60000", "-1"), 0.4),
    ("retention.bytes", ("0", "2000", "10000"), 0.25),
    ("message.timestamp.type", ("LogAppendTime", "CreateTime"), 0.3),
    ("compression.type", ("producer", "gzip", "zstd", "uncompressed"), 0.25),
    ("flush.messages", ("1", "1", "3"), 0.3),
    ("flush.ms", ("50", "500"), 0.3),
    ("index.interval.bytes", ("0", "100", "1000"), 0.6),
    ("segment.index.bytes", ("40", "100", "1000"), 0.3),
    ("segment.ms", ("100", "3000"), 0.3),
    ("file.delete.delay.ms", ("0", "100", "2000"), 0.7),
    ("max.message.bytes", ("300", "100000"), 0.1),
    ("preallocate", ("true",), 0.15),
    ("cleanup.policy", ("compact", "delete"), 0.1),
    ("min.insync.replicas", ("2",), 0.03),
)


def profile_of(seed: int) -> Profile:
    """Return the profile of a seed."""
    chance = generator(seed, "profile")
    log_dirs = tuple(f"/data{number}" for number in range(chance.choice((1, 1, 2, 3))))
    large = chance.random() < 0.15
    return Profile(
        log_dirs=log_dirs,
        properties=_properties(chance, log_dirs) | _metadata(generator(seed, "metadata")),
        max_open_files=chance.choice((4, 12, 100)),
        producers=chance.choice((0, 1, 1, 2, 3)),
        idempotent_producers=chance.choice((1, 1, 2, 3)),
        consumers=chance.choice((0, 1, 2, 3)),
        admins=chance.choice((1, 1, 1, 2)),
        probers=chance.choice((0, 1)),
        noise=chance.choice((0, 0, 1)),
        pipelining=chance.choice((1, 2, 5, 20)),
        most_records=chance.choice((1, 3, 8)),
        most_bytes=40_000 if large else chance.choice((10, 100, 1000)),
        slow_connections=chance.choice((0.0, 0.0, 0.3, 1.0)),
        interleaving=chance.choice((0.0, 0.05, 0.3)),
        kill_rate=chance.choice((0.0, 2.0, 6.0)),
        power_rate=chance.choice((0.0, 2.0, 6.0)),
        clean_rate=chance.choice((0.0, 1.0, 3.0)),
        full_rate=chance.choice((0.0, 0.0, 3.0, 10.0)),
        error_rate=chance.choice((0.0, 0.0, 0.0, 2.0)),
        wall_step_rate=chance.choice((0.0, 0.0, 5.0)),
        queued_max_bytes=chance.choice((100_000, 10_000_000)),
        classic_members=chance.choice((0, 0, 0, 2, 3)),
        consumer_members=chance.choice((0, 0, 0, 2, 3)),
        pauses=generator(seed, "pauses").random() < 0.3,
    )


def _metadata(chance: Generator) -> dict[str, str]:
    """Return settings of the metadata log: snapshots from never to after every change."""
    return {
        "metadata.log.max.record.bytes.between.snapshots": str(chance.choice((1, 500, 20971520))),
        "metadata.log.segment.ms": str(chance.choice((1, 1000, 604800000))),
        "metadata.max.retention.bytes": str(chance.choice((1, 3000, 104857600))),
    }


def _properties(chance: Generator, log_dirs: tuple[str, ...]) -> dict[str, str]:
    """Return settings of the broker, with intervals short enough to pass in minutes."""
    return {
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "log.dirs": ",".join(log_dirs),
        "log.cleaner.enable": "false",  # the judges expect every batch as it was sent
        "num.partitions": str(chance.choice((1, 2))),
        "auto.create.topics.enable": chance.choice(("true", "false")),
        "log.initial.task.delay.ms": str(chance.choice((10, 1000))),
        "log.retention.check.interval.ms": str(chance.choice((100, 1000))),
        "log.flush.scheduler.interval.ms": str(chance.choice((20, 300))),
        "log.flush.offset.checkpoint.interval.ms": str(chance.choice((50, 1000, 20_000))),
        "log.flush.start.offset.checkpoint.interval.ms": "60000",
        "producer.id.expiration.ms": str(chance.choice((2000, 86_400_000))),
        "producer.id.expiration.check.interval.ms": "500",
        "max.incremental.fetch.session.cache.slots": str(chance.choice((0, 1, 2, 100))),
        "fetch.max.bytes": str(chance.choice((1024, 5000, 100_000))),
        "offsets.topic.num.partitions": "1",
        "offsets.topic.segment.bytes": "20000",
        "group.initial.rebalance.delay.ms": "50",
        "group.min.session.timeout.ms": "100",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": "2000",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "500",
        "group.consumer.assignment.interval.ms": "0",
        "group.consumer.min.assignment.interval.ms": "0",
    }
