"""Broker settings of transactions and of the topic `__transaction_state`."""

from __future__ import annotations

from ottla.config.component import Component, setting
from ottla.config.definition import AtLeast


class TransactionsConfig(Component):
    """How transactions are coordinated, and when they time out."""

    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms",
        "int",
        default=900000,
        validator=AtLeast(1),
        doc="The longest timeout that a transactional producer may ask for.",
        importance="high",
    )
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        "int",
        default=604800000,
        validator=AtLeast(1),
        doc="How long a transactional id is kept that no producer uses.",
        importance="high",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "int",
        default=10000,
        validator=AtLeast(1),
        doc="How often the broker checks for transactions that have timed out, to abort them.",
        importance="low",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        "int",
        default=3600000,
        validator=AtLeast(1),
        doc="How often the broker checks for transactional ids that have expired.",
        importance="low",
    )
    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions",
        "int",
        default=50,
        validator=AtLeast(1),
        doc=(
            "The number of partitions of __transaction_state when it is created. Do not change it"
            " later."
        ),
        importance="high",
    )
    transaction_state_log_replication_factor: int = setting(
        "transaction.state.log.replication.factor",
        "short",
        default=3,
        validator=AtLeast(1),
        doc=(
            "The number of replicas of __transaction_state when it is created. Transactional"
            " producers have to wait until there are as many brokers. A single broker needs no"
            " more than itself."
        ),
        importance="high",
    )
    transaction_state_log_min_isr: int = setting(
        "transaction.state.log.min.isr",
        "int",
        default=2,
        validator=AtLeast(1),
        doc=(
            "The min.insync.replicas of __transaction_state when it is created. For a single"
            " broker it is 1."
        ),
        importance="high",
    )
    transaction_state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes",
        "int",
        default=104857600,
        validator=AtLeast(1),
        doc=(
            "The segment.bytes of __transaction_state when it is created. A value below 1 MiB"
            " counts as 1 MiB."
        ),
        importance="high",
    )
    transaction_two_phase_commit_enable: bool = setting(
        "transaction.two.phase.commit.enable",
        "boolean",
        default=False,
        validator=None,
        doc=(
            "Whether producers may take part in two-phase commits (KIP-939). Their transactions"
            " never time out."
        ),
        importance="low",
    )
