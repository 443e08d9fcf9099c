"""Members of a KIP-848 group: the coordinator assigns, they give up and take partitions."""

from __future__ import annotations

from random import Random as Generator
from typing import Final

from ottla.model.errors import ErrorCode
from ottla.sim.clients.client import Environment
from ottla.sim.clients.group_member import SUBSCRIBED, GroupMember
from ottla.sim.judges.groups import LEAVE_EPOCH
from ottla.sim.network.exchange import Exchange
from ottla.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from ottla.wire.messages.offset_commit import OffsetCommitResponse

_REBALANCE_MS: Final = 60_000
_OUT = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


class ConsumerMember(GroupMember):
    """Takes what it is assigned with its next heartbeat, and gives up the rest."""

    GROUP_ID = "consumer"

    def __init__(self, name: str, environment: Environment, chance: Generator) -> None:
        super().__init__(name, environment, chance)
        self._numbers = 0
        self._begin_as_new()

    def _begin_as_new(self) -> None:
        self._numbers += 1
        self._member_id = f"{self.name}.{self._numbers}"
        self._start_over()

    def _start_over(self) -> None:
        """Join with nothing."""
        self._epoch = 0
        self._owned: list[RequestTopicPartitions] = []
        self._reports = True

    def take_turn(self) -> None:
        dice = self.chance.random()
        place = self.pick_partition()
        if self._epoch <= 0 or place is None or dice < 0.6:
            self._send_heartbeat()
        elif dice < 0.75:
            self.fetch_offset(place)
        elif dice < 0.97:
            self.commit(place, self._epoch, self._member_id)
        else:
            self._send_heartbeat(leaves=True)

    def _send_heartbeat(self, *, leaves: bool = False) -> None:
        is_full = self._reports or self.chance.random() < 0.1
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.GROUP_ID,
            member_id=self._member_id,
            member_epoch=LEAVE_EPOCH if leaves else self._epoch,
            rebalance_timeout=_REBALANCE_MS if is_full else -1,
            subscribed_topic_names=list(SUBSCRIBED) if is_full else None,
            topic_partitions=self._owned if is_full else None,
        )
        self._reports = False
        self.ask(request, 1)

    def received(self, exchange: Exchange) -> None:
        super().received(exchange)
        reply, request = exchange.reply, exchange.request
        if isinstance(reply, ConsumerGroupHeartbeatResponse):
            assert isinstance(request, ConsumerGroupHeartbeatRequest)
            if request.member_epoch == LEAVE_EPOCH and not reply.error_code:
                self._begin_as_new()
            else:
                self._answered(reply)
        elif isinstance(reply, OffsetCommitResponse):
            self._refused(reply.topics[0].partitions[0].error_code)

    def _answered(self, reply: ConsumerGroupHeartbeatResponse) -> None:
        if reply.error_code:
            self._refused(reply.error_code)
            return
        self._epoch = reply.member_epoch
        if reply.assignment is not None:
            self._owned = _taken(reply.assignment)
            self._reports = True

    def _refused(self, code: int) -> None:
        if code in _OUT:
            self._start_over()
        elif code == ErrorCode.NOT_COORDINATOR:
            self._knows_coordinator = False
            self._reports = True
        elif code:
            self._reports = True

    def disconnected(self, lost: list[Exchange]) -> None:
        self._reports = True


def _taken(assignment: Assignment) -> list[RequestTopicPartitions]:
    return [
        RequestTopicPartitions(topic_id=topic.topic_id, partitions=topic.partitions)
        for topic in assignment.topic_partitions
    ]
