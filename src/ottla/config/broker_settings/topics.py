"""Broker settings of creating and deleting topics.

The settings of a topic, and their defaults, are in config/topic.py.
"""

from __future__ import annotations

from ottla.config.component import Component, setting
from ottla.config.definition import AtLeast


class TopicsConfig(Component):
    """Which topics may be created and deleted, and with how many partitions and replicas."""

    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable",
        "boolean",
        default=True,
        doc="Create a topic when a client requests the metadata of a topic that does not exist.",
        importance="high",
    )
    delete_topic_enable: bool = setting(
        "delete.topic.enable",
        "boolean",
        default=True,
        doc="Allow topics to be deleted.",
        importance="high",
    )
    num_partitions: int = setting(
        "num.partitions",
        "int",
        default=1,
        validator=AtLeast(1),
        doc="The number of partitions of a new topic, if the request does not give one.",
    )
    default_replication_factor: int = setting(
        "default.replication.factor",
        "int",
        default=1,
        validator=AtLeast(1),
        doc="The number of replicas of a new topic, if the request does not give one.",
    )
