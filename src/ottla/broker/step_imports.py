"""Imports of what is needed later, in steps.

A broker starts with few modules and imports others with the first request that needs them. A
coordinator is 50 modules, which would hold the loop for 15 to 30 ms. Some other APIs would hold it
for 5 to 10 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Final

from ottla.model.steps import Steps

GROUPS: Final = (
    "ottla.coordinator.groups.consumer.topic_patterns",
    "ottla.coordinator.groups.records",
    "ottla.coordinator.groups.record_serde",
    "ottla.coordinator.groups.classic.member",
    "ottla.coordinator.groups.classic.group",
    "ottla.coordinator.groups.consumer.record_builders",
    "ottla.coordinator.groups.consumer.replay",
    "ottla.coordinator.groups.error_response",
    "ottla.coordinator.groups.group_shard",
    "ottla.coordinator.runtime.loader",
    "ottla.coordinator.runtime.shard_runtime",
    "ottla.broker.groups",
)
"""The modules of the group coordinator. Each imports a few others."""

CONSUMER_GROUPS: Final = (
    *GROUPS,
    "ottla.coordinator.groups.consumer.consumer_protocol",
    "ottla.coordinator.groups.consumer.heartbeat",
    "ottla.coordinator.groups.consumer.uniform_assignor",
)
"""The modules of groups of the consumer protocol."""

PRODUCERS: Final = (
    "ottla.coordinator.transactions.init_producer",
    "ottla.broker.producer_ids",
)
"""The modules that give producers their ids."""

TRANSACTIONS: Final = (
    "ottla.coordinator.runtime.loader",
    "ottla.coordinator.runtime.shard_runtime",
    "ottla.coordinator.transactions.records",
    "ottla.coordinator.transactions.transaction_shard",
    "ottla.coordinator.transactions.transaction_coordinator",
    "ottla.broker.transactions",
)
"""The modules of the transaction coordinator."""

TOPICS: Final = (
    "ottla.wire.messages.create_topics",
    "ottla.controller.group_configs",
    "ottla.broker.controller_decisions",
    "ottla.config.describe",
    "ottla.controller.topics",
)
"""The modules that create topics."""

QUORUM: Final = (
    "ottla.raft.messages",
    "ottla.wire.messages.fetch_snapshot",
    "ottla.controller.quorum.replies_to_wire",
)
"""The modules that answer questions about the metadata quorum."""

LARGE_PRODUCE: Final = ("ottla.broker.large_requests.large_produce",)
LARGE_FETCH: Final = ("ottla.broker.large_requests.large_fetch",)
LARGE_OFFSET_COMMIT: Final = ("ottla.broker.large_requests.large_offset_commit",)
"""The modules that handle large requests of APIs with a codec of their own."""

CLEANER: Final = (
    "ottla.log.cleaner.batch_codecs",
    "ottla.log.cleaner.cleaning_session",
    "ottla.log.cleaner.task_messages",
    "ottla.log.cleaner.clean_run",
    "ottla.log.cleaner.log_cleaner",
)
"""The modules of the log cleaner."""


def import_in_steps(modules: Sequence[str]) -> Steps[None]:
    """Import some modules, one with each step."""
    for module in modules:
        import_module(module)
        yield
