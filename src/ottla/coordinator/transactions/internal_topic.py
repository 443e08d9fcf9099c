"""The topic __transaction_state. It is created when a client first looks for a coordinator."""

from __future__ import annotations

from ottla.config.broker_settings.transactions import TransactionsConfig
from ottla.controller.topics import NewTopic
from ottla.model.ids import TRANSACTIONS_TOPIC

_MIN_SEGMENT_BYTES = 1024 * 1024  # the least that `segment.bytes` of a topic allows


def transactions_topic(config: TransactionsConfig, *, is_alone: bool) -> NewTopic:
    """Return the topic to create.

    A broker that is a cluster of its own has the only replica, whatever the settings say. In a
    cluster the topic cannot be created before there are enough brokers, as with Kafka.
    """
    replication_factor = 1 if is_alone else config.transaction_state_log_replication_factor
    min_isr = 1 if is_alone else config.transaction_state_log_min_isr
    segment_bytes = max(config.transaction_state_log_segment_bytes, _MIN_SEGMENT_BYTES)
    return NewTopic(
        TRANSACTIONS_TOPIC,
        config.transaction_state_log_num_partitions,
        replication_factor,
        configs=[
            ("cleanup.policy", "compact"),
            ("compression.type", "uncompressed"),
            ("min.insync.replicas", str(min_isr)),
            ("segment.bytes", str(segment_bytes)),
            ("unclean.leader.election.enable", "false"),
        ],
    )
