"""The topic __consumer_offsets. It is created when a client first looks for a group."""

from __future__ import annotations

from ottla.config.broker_settings.offsets import OffsetsConfig
from ottla.controller.topics import NewTopic
from ottla.model.ids import OFFSETS_TOPIC

_MIN_SEGMENT_BYTES = 1024 * 1024  # the least that `segment.bytes` of a topic allows


def offsets_topic(config: OffsetsConfig, *, is_alone: bool) -> NewTopic:
    """Return the topic to create.

    A broker that is a cluster of its own has the only replica, whatever the setting says. In a
    cluster the topic cannot be created before there are enough brokers, as with Kafka.
    """
    return NewTopic(
        OFFSETS_TOPIC,
        config.offsets_topic_num_partitions,
        1 if is_alone else config.offsets_topic_replication_factor,
        configs=[
            ("cleanup.policy", "compact"),
            ("compression.type", "producer"),
            ("segment.bytes", str(max(config.offsets_topic_segment_bytes, _MIN_SEGMENT_BYTES))),
        ],
    )
