"""InitProducerId, versions 0 to 6: ids of idempotent and transactional producers.

KIP-98, KIP-360; version 6 has the fields of two-phase commit (KIP-939). As with Kafka 4.3, a
transaction that an earlier process of the producer prepared cannot be kept: UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.broker.step_imports import TRANSACTIONS, import_in_steps
from ottla.coordinator.transactions.init_producer import InitProducer, ProducerIdAndEpoch
from ottla.coordinator.transactions.outcome import Outcome
from ottla.model.acl import AclOperation, AclResourceType
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.model.steps import Steps
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

FIRST_PRODUCER_FENCED = 4


def handle(
    node: Node, request: InitProducerIdRequest, context: RequestContext
) -> Steps[None] | None:
    """Answer with a producer id and an epoch."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise ApiError(ErrorCode.INVALID_REQUEST)  # one of them without the other
    if request.transactional_id is None:
        _give_new_id(node, request, context)
    elif node.started_transactions is None:
        return _init_first_transactions(node, request, request.transactional_id, context)
    else:
        _init_transactions(node, request, request.transactional_id, context)
    return None


def _give_new_id(node: Node, request: InitProducerIdRequest, context: RequestContext) -> None:
    """Answer with a producer id that nobody had before, in epoch 0."""
    reply = context.defer()

    def take(producer_id: int | ApiError) -> None:
        if isinstance(producer_id, ApiError):
            reply.send(refuse(request, producer_id, context))
        else:
            reply.send(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    node.producer_ids.next(take)


def _init_first_transactions(
    node: Node, request: InitProducerIdRequest, transactional_id: str, context: RequestContext
) -> Steps[None]:
    """Import the transaction coordinator in steps, then do what `_init_transactions` does."""
    yield from import_in_steps(TRANSACTIONS)
    _init_transactions(node, request, transactional_id, context)


def _init_transactions(
    node: Node, request: InitProducerIdRequest, transactional_id: str, context: RequestContext
) -> None:
    if not transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    context.authorize(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id)
    expected = None
    if request.producer_id != NO_PRODUCER_ID:
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    node.transactions.runtime_of(transactional_id)  # raises before the request is parked
    if request.enable2_pc:
        context.authorize(
            AclOperation.TWO_PHASE_COMMIT, AclResourceType.TRANSACTIONAL_ID, transactional_id
        )
        node.transactions.check_two_phase()
    if request.keep_prepared_txn:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    timeout_ms = node.transactions.timeout_ms(
        request.transaction_timeout, two_phase=request.enable2_pc
    )
    asked = InitProducer(transactional_id, timeout_ms, expected)
    context.defer()

    def done(outcome: Outcome) -> None:
        code = outcome.error_code
        if code is not ErrorCode.NONE:
            context.send(refuse(request, ApiError(code), context))
            return
        response = InitProducerIdResponse(
            producer_id=outcome.producer_id, producer_epoch=outcome.producer_epoch
        )
        context.send(response)

    node.transactions.init_producer(asked, done)


def refuse(
    request: InitProducerIdRequest, error: ApiError, context: RequestContext
) -> InitProducerIdResponse:
    """Return the error, and no producer id. Older clients do not know PRODUCER_FENCED."""
    code = error.code
    if code is ErrorCode.PRODUCER_FENCED and context.version < FIRST_PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER_EPOCH)
