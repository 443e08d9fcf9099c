"""Producer ids that this broker gives out: from a block, until it is used up (KIP-730)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ottla.controller.producer_ids import ProducerIdBlock, allocate_producer_ids
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.broker.node import Node

REQUEST_TIMEOUT_MS = 10_000
GiveBlock: TypeAlias = Callable[[ProducerIdBlock | ApiError], None]
Take: TypeAlias = Callable[[int | ApiError], None]


def allocate_block(node: Node, broker_id: int, broker_epoch: int, done: GiveBlock) -> None:
    """Let this node, the active controller, give a broker a block that nobody else gets.

    `done` gets it once that is committed. The block is chosen when it is this decision's turn, so
    two brokers that ask while another decision is made do not get the same one.
    """
    found: list[ProducerIdBlock | ApiError] = []

    def decide(image: MetadataImage) -> Steps[Sequence[Message]]:
        yield
        try:
            decision = allocate_producer_ids(image, broker_id, broker_epoch)
        except ApiError as error:
            found.append(error)
            return []
        found.extend(decision.results)
        return decision.records

    node.controller.decide(decide, lambda failure: done(failure or found[0]))


class ProducerIds:
    """The broker's block of producer ids, and those who wait for the next block."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._block = ProducerIdBlock(0, 0)
        self._waiting: deque[Take] = deque()

    def next(self, take: Take) -> None:
        """Call `take` with an id that nobody had before, or with the error, at once or later."""
        self._waiting.append(take)
        if len(self._waiting) == 1:
            self._serve()

    def _serve(self) -> None:
        while self._waiting:
            first, size = self._block
            if not size:
                self._allocate()
                return
            self._block = ProducerIdBlock(first + 1, size - 1)
            self._waiting.popleft()(first)

    def _allocate(self) -> None:
        node = self._node
        if not node.config.is_alone:
            self._ask_controller()
            return

        def done(result: ProducerIdBlock | ApiError) -> None:
            if isinstance(result, ApiError):
                self._refuse(result)
            else:
                self._block = result
                self._serve()

        allocate_block(node, node.node_id, node.hosted_logs.broker_epoch, done)

    def _ask_controller(self) -> None:
        """Get the next block from the active controller."""
        from ottla.wire.messages.allocate_producer_ids import (
            AllocateProducerIdsRequest,
            AllocateProducerIdsResponse,
        )

        def answered(result: AllocateProducerIdsResponse | TimeoutError) -> None:
            if isinstance(result, TimeoutError):
                self._refuse(ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(result)))
            elif result.error_code:
                self._refuse(ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            else:
                self._block = ProducerIdBlock(result.producer_id_start, result.producer_id_len)
                self._serve()

        node = self._node
        request = AllocateProducerIdsRequest(
            broker_id=node.node_id, broker_epoch=node.hosted_logs.broker_epoch
        )
        node.channel.send(request, 0, AllocateProducerIdsResponse, answered, REQUEST_TIMEOUT_MS)

    def _refuse(self, error: ApiError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for take in waiting:
            take(error)
