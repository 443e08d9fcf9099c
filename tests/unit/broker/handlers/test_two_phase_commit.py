"""Two-phase commit (KIP-939): who may ask for it, and what is refused."""

from __future__ import annotations

from ottla.model.acl import AclOperation, AclResourceType
from ottla.model.errors import ErrorCode
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from tests.support.broker import Broker, DenyingOne

ID = "tx"


def init(broker: Broker, *, timeout: int = 1000, **fields: bool) -> ErrorCode:
    """Ask for a producer id; return the error."""
    request = InitProducerIdRequest(transactional_id=ID, transaction_timeout=timeout, **fields)
    return ErrorCode(broker.connect().ask(request, 6).error_code)


def started(*, enabled: str = "false") -> Broker:
    broker = Broker(transaction_two_phase_commit_enable=enabled)
    broker.connect().ask(FindCoordinatorRequest(key=ID, key_type=1), 3)
    return broker


def test_two_phase_commit_has_to_be_enabled() -> None:
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert init(started(), enable2_pc=True) is refused
    broker = started(enabled="true")
    assert init(broker, enable2_pc=True) is ErrorCode.NONE


def test_two_phase_commit_needs_a_permission_of_its_own() -> None:
    broker = started(enabled="true")
    broker.node.pipeline.authorizer = DenyingOne(
        AclOperation.TWO_PHASE_COMMIT, AclResourceType.TRANSACTIONAL_ID, ID
    )
    assert init(broker, enable2_pc=True) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert init(broker) is ErrorCode.NONE


def test_a_prepared_transaction_cannot_be_kept() -> None:
    broker = started()
    unsupported = ErrorCode.UNSUPPORTED_VERSION
    assert init(broker, keep_prepared_txn=True) is unsupported
    assert init(broker, keep_prepared_txn=True, timeout=0) is unsupported
    assert init(broker, timeout=0) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
