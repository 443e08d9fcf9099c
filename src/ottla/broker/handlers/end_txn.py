"""EndTxn, versions 0 to 5: commit or abort a transaction (KIP-98, KIP-890).

The answer is sent when the decision is committed. Markers are written after that. A client that
sends version 5 speaks transaction version 2: it gets the epoch of its next transaction.
"""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.coordinator.transactions.end_transaction import EndTransaction
from ottla.coordinator.transactions.outcome import Outcome
from ottla.model.acl import AclOperation, AclResourceType
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

FIRST_PRODUCER_FENCED = 2
FIRST_VERSION_2 = 5


def handle(node: Node, request: EndTxnRequest, context: RequestContext) -> None:
    """Answer when the decision is committed."""
    transactional_id = request.transactional_id
    context.authorize(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id)
    node.transactions.runtime_of(transactional_id)  # raises before the request is parked
    context.defer()

    def done(outcome: Outcome) -> None:
        code = outcome.error_code
        if code is not ErrorCode.NONE:
            context.send(refuse(request, ApiError(code), context))
            return
        response = EndTxnResponse(
            producer_id=outcome.producer_id, producer_epoch=outcome.producer_epoch
        )
        context.send(response)

    asked = EndTransaction(
        transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        2 if context.version >= FIRST_VERSION_2 else 0,
    )
    node.transactions.end_transaction(asked, done)


def refuse(request: EndTxnRequest, error: ApiError, context: RequestContext) -> EndTxnResponse:
    """Return the error. Older clients do not know PRODUCER_FENCED."""
    code = error.code
    if code is ErrorCode.PRODUCER_FENCED and context.version < FIRST_PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(error_code=code)
