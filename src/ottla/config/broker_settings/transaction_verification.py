"""Broker settings of the leaders of partitions that transactions write to."""

from __future__ import annotations

from ottla.config.component import Component, setting
from ottla.config.definition import CLUSTER_WIDE, AtLeast


class TransactionVerificationConfig(Component):
    """How leaders ask the transaction coordinator about the first batch of a transaction."""

    transaction_partition_verification_enable: bool = setting(
        "transaction.partition.verification.enable",
        "boolean",
        default=True,
        validator=None,
        doc=(
            "Whether the coordinator is asked if a partition is part of the transaction before its"
            " first batch is appended (KIP-890). Clients of transaction version 2 have the"
            " partition added in any case."
        ),
        importance="low",
        update=CLUSTER_WIDE,
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        "add.partitions.to.txn.retry.backoff.ms",
        "int",
        default=20,
        validator=AtLeast(1),
        doc=(
            "How long to wait before the coordinator is asked again to add a partition, while the"
            " producer's last transaction ends."
        ),
        importance="high",
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        "add.partitions.to.txn.retry.backoff.max.ms",
        "int",
        default=100,
        validator=AtLeast(0),
        doc="After this time the coordinator is not asked again, and the client has to retry.",
        importance="high",
    )
