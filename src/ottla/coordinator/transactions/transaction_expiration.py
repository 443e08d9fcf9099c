"""Transactional ids that nobody uses any more are deleted by tombstones."""

from __future__ import annotations

from typing import Final

from ottla.coordinator.runtime.record import CoordinatorRecord
from ottla.coordinator.runtime.shard_runtime import ShardRuntime
from ottla.coordinator.transactions.transaction_shard import TransactionShard
from ottla.model.steps import Steps

_IDS_A_STEP: Final = 200


def expire_transactional_ids(runtime: ShardRuntime[TransactionShard]) -> Steps[None]:
    """Delete the ids of a shard that have no transaction and are past their expiration."""
    shard = runtime.shard
    broker = shard.broker
    expiration_ms = broker.config.transactions.transactional_id_expiration_ms
    ids = list(shard.transactions)
    for start in range(0, len(ids), _IDS_A_STEP):
        yield
        if not runtime.is_active:
            return
        tombstones: list[CoordinatorRecord] = []
        for transactional_id in ids[start : start + _IDS_A_STEP]:
            found = shard.transactions.get(transactional_id)
            if found is not None and found.is_expired(broker.wall_ms, expiration_ms):
                tombstones.append((found.key, None))
        runtime.write_in_parts(tombstones)
