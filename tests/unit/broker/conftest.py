"""Brokers in memory."""

from __future__ import annotations

import pytest

from ottla.model.errors import ApiError, ErrorCode
from tests.support.broker import Broker, Denying


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture(scope="module")
def denying() -> Broker:
    """Return a broker whose authorizer denies everything."""
    broker = Broker()
    error = ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you")
    broker.node.pipeline.authorizer = Denying(error)
    return broker
