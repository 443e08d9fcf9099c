"""Offsets in transactions while coordinators of groups die: they appear with it, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.model.errors import ErrorCode
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.sim.test_transactions_over_failover import ID, RETRIED, TransactionalClient

GROUP = "copiers"
BEFORE, AFTER = 3, 8
"""The offsets of the transaction before, and of the one in which a broker dies."""


class CopyingClient(TransactionalClient):
    """A transactional client that commits offsets of a group."""

    def group_coordinator(self) -> int:
        return self.find(GROUP, key_type=0)

    def commit_offset(self, offset: int) -> None:
        """Commit an offset in the transaction. An old client adds the group to it first."""
        if not self.is_new:
            self.ask(
                self.coordinator,
                AddOffsetsToTxnRequest(
                    transactional_id=ID,
                    producer_id=self.producer[0],
                    producer_epoch=self.producer[1],
                    group_id=GROUP,
                ),
                3,
            )
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=ID,
            group_id=GROUP,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
        )
        self.ask(
            self.group_coordinator,
            request,
            5 if self.is_new else 3,
            lambda response: int(response.topics[0].partitions[0].error_code),
        )

    def fetch_offset(self, *, require_stable: bool = True) -> tuple[ErrorCode, int]:
        """Return what the group has committed, and the error that the partition has."""
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
        request = OffsetFetchRequest(groups=[group], require_stable=require_stable)
        for _ in range(400):
            response: Any = self.cluster.ask(self.group_coordinator(), request, 8)
            (answer,) = response.groups
            if answer.error_code not in RETRIED:
                found = answer.topics[0].partitions[0]
                return ErrorCode(found.error_code), int(found.committed_offset)
            self.cluster.run_for(20)
        raise AssertionError("the offsets were not loaded")

    def settled_offset(self) -> int:
        """Return what the group has committed, once no transaction has offsets of it."""
        for _ in range(400):
            code, offset = self.fetch_offset()
            if code is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
                return offset
            self.cluster.run_for(20)
        raise AssertionError("the transaction has no marker in the offsets topic")


@pytest.mark.parametrize("is_new", [True, False], ids=["version 2", "version 0"])
@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("step", ["before", "offsets", "decide"])
def test_the_group_coordinator_dies(step: str, committed: bool, is_new: bool) -> None:
    client = CopyingClient(seed=5, is_new=is_new)
    client.init()
    client.write(b"0")
    client.commit_offset(BEFORE)
    client.end(committed=True)
    assert client.settled_offset() == BEFORE
    client.write(b"1")
    if step == "before":
        client.kill(client.group_coordinator())
    client.commit_offset(AFTER)
    if step == "offsets":
        client.kill(client.group_coordinator())
    assert client.fetch_offset()[0] is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert client.fetch_offset(require_stable=False) == (ErrorCode.NONE, BEFORE)
    client.end(committed=committed)
    if step == "decide":
        client.kill(client.group_coordinator())
    assert client.settled_offset() == (AFTER if committed else BEFORE)
    client.settle()
    assert client.committed_values() == ([b"0", b"1"] if committed else [b"0"])
