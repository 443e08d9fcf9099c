"""Broker settings of tiered storage. Those of a topic are in config/topic.py."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.config.component import Component, setting
from ottla.config.definition import CLUSTER_WIDE, MAX_LONG, AtLeast


class TieredStorageConfig(Component):
    """Where the remote tier is, how fast it is used, and the topic with its metadata."""

    remote_log_storage_system_enable: bool = setting(
        "remote.log.storage.system.enable",
        "boolean",
        default=False,
        doc=(
            "Allow topics with remote.storage.enable=true. remote.log.storage.url says where their"
            " old segments are stored."
        ),
        importance="medium",
    )
    remote_log_storage_url: str | None = setting(
        "remote.log.storage.url",
        "string",
        default=None,
        doc=(
            "The object store of the remote tier: file:./directory, s3://bucket/prefix, gs:// or"
            " az://. Credentials come from the environment. This setting is Ottla's own; Kafka"
            " names a Java class instead. All brokers of a cluster need the same store."
        ),
        importance="medium",
    )
    remote_log_manager_task_interval_ms: int = setting(
        "remote.log.manager.task.interval.ms",
        "long",
        default=30_000,
        validator=AtLeast(1),
        doc="How often the broker looks for segments to copy to the remote tier, or to delete.",
        importance="low",
    )
    remote_log_manager_copy_max_bytes_per_second: int = setting(
        "remote.log.manager.copy.max.bytes.per.second",
        "long",
        default=MAX_LONG,
        validator=AtLeast(1),
        doc="How many bytes a broker copies to the remote tier in a second, on average.",
        update=CLUSTER_WIDE,
    )
    remote_log_manager_fetch_max_bytes_per_second: int = setting(
        "remote.log.manager.fetch.max.bytes.per.second",
        "long",
        default=MAX_LONG,
        validator=AtLeast(1),
        doc="How many bytes a broker reads from the remote tier in a second, on average.",
        update=CLUSTER_WIDE,
    )
    remote_log_reader_threads: int = setting(
        "remote.log.reader.threads",
        "int",
        default=10,
        validator=AtLeast(1),
        doc="How many reads from the remote tier may run at the same time.",
        update=CLUSTER_WIDE,
    )
    remote_log_reader_max_pending_tasks: int = setting(
        "remote.log.reader.max.pending.tasks",
        "int",
        default=100,
        validator=AtLeast(1),
        doc=(
            "How many reads from the remote tier may wait for their turn. Fetches that need another"
            " one are answered without records, and try again."
        ),
        importance="low",
    )
    remote_log_index_file_cache_total_size_bytes: int = setting(
        "remote.log.index.file.cache.total.size.bytes",
        "long",
        default=1_073_741_824,
        validator=AtLeast(1),
        doc=(
            "The memory for indexes and records that were read from the remote tier. Ottla uses"
            " at most 64 MiB."
        ),
        importance="low",
        update=CLUSTER_WIDE,
    )
    remote_fetch_max_wait_ms: int = setting(
        "remote.fetch.max.wait.ms",
        "int",
        default=500,
        validator=AtLeast(1),
        doc="How long a fetch waits for records from the remote tier before it is answered.",
        update=CLUSTER_WIDE,
    )
    remote_list_offsets_request_timeout_ms: int = setting(
        "remote.list.offsets.request.timeout.ms",
        "long",
        default=30_000,
        validator=AtLeast(1),
        doc="How long a lookup by timestamp waits for the remote tier.",
        update=CLUSTER_WIDE,
    )
    rlmm_config_remote_log_metadata_topic_num_partitions: int = setting(
        "rlmm.config.remote.log.metadata.topic.num.partitions",
        "int",
        default=50,
        validator=AtLeast(1),
        doc="The number of partitions of __remote_log_metadata. It must not change later.",
        importance="low",
    )
    rlmm_config_remote_log_metadata_topic_replication_factor: int = setting(
        "rlmm.config.remote.log.metadata.topic.replication.factor",
        "short",
        default=3,
        validator=AtLeast(1),
        doc=(
            "The replication factor of __remote_log_metadata. A broker that is a cluster of its"
            " own has one replica, whatever this says."
        ),
        importance="low",
    )
    rlmm_config_remote_log_metadata_topic_retention_ms: int = setting(
        "rlmm.config.remote.log.metadata.topic.retention.ms",
        "long",
        default=-1,
        validator=AtLeast(-1),
        doc=(
            "How long __remote_log_metadata keeps its records. It must be longer than any topic"
            " keeps its own; -1 means forever."
        ),
        importance="low",
    )

    def check(self) -> Iterator[str]:
        if self.rlmm_config_remote_log_metadata_topic_retention_ms == 0:
            yield "Invalid metadata topic retention in millis: 0"
        if self.remote_log_storage_url and not self.remote_log_storage_system_enable:
            yield (
                "remote.log.storage.url needs remote.log.storage.system.enable=true: without it no"
                " topic is tiered"
            )
