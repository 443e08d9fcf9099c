"""Answers of a controller that was not the active one any more are found, and asked for again."""

from __future__ import annotations

import pytest

from ottla.broker.forwarding import has_error
from ottla.model.errors import ErrorCode
from ottla.model.steps import run_to_end
from ottla.wire.message import Message
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from ottla.wire.messages.unregister_broker import UnregisterBrokerResponse

CODE = ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize(
    "response",
    [
        UnregisterBrokerResponse(error_code=CODE),
        CreateTopicsResponse(
            topics=[CreatableTopicResult(name="a"), CreatableTopicResult(name="b", error_code=CODE)]
        ),
        AlterPartitionReassignmentsResponse(
            responses=[
                ReassignableTopicResponse(
                    name="t", partitions=[ReassignablePartitionResponse(error_code=CODE)]
                )
            ]
        ),
    ],
)
def test_the_error_is_found_wherever_it_is(response: Message) -> None:
    assert run_to_end(has_error(response, CODE))
    assert not run_to_end(has_error(response, ErrorCode.INVALID_REQUEST))


def test_there_is_none() -> None:
    response = CreateTopicsResponse(topics=[CreatableTopicResult(name="a")])
    assert not run_to_end(has_error(response, CODE))
