"""Kafka's broker settings for tiered storage that are accepted without effect."""

from __future__ import annotations

from ottla.config.broker_settings.accepted_row import Accepted
from ottla.config.definition import CLUSTER_WIDE, AtLeast

_row = Accepted("For parts of Kafka's tiered storage that Ottla does not have: classes, threads.")
TIERED_STORAGE = (
    _row("follower.fetch.last.tiered.offset.enable", "boolean", False, None, CLUSTER_WIDE),
    _row("remote.log.manager.copier.thread.pool.size", "int", 10, AtLeast(1), CLUSTER_WIDE),
    _row("remote.log.manager.copy.quota.window.num", "int", 11, AtLeast(1)),
    _row("remote.log.manager.copy.quota.window.size.seconds", "int", 1, AtLeast(1)),
    _row("remote.log.manager.expiration.thread.pool.size", "int", 10, AtLeast(1), CLUSTER_WIDE),
    _row("remote.log.manager.fetch.quota.window.num", "int", 11, AtLeast(1)),
    _row("remote.log.manager.fetch.quota.window.size.seconds", "int", 1, AtLeast(1)),
    _row("remote.log.manager.follower.thread.pool.size", "int", 2, AtLeast(1), CLUSTER_WIDE),
    _row("remote.log.manager.thread.pool.size", "int", 2, AtLeast(1)),
    _row("remote.log.metadata.custom.metadata.max.bytes", "int", 128, AtLeast(1)),
    _row(
        "remote.log.metadata.manager.class.name",
        "string",
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
    ),
    _row("remote.log.metadata.manager.class.path", "string", None),
    _row("remote.log.metadata.manager.impl.prefix", "string", "rlmm.config."),
    _row("remote.log.metadata.manager.listener.name", "string", None),
    _row("remote.log.storage.manager.class.name", "string", None),
    _row("remote.log.storage.manager.class.path", "string", None),
    _row("remote.log.storage.manager.impl.prefix", "string", "rsm.config."),
)
