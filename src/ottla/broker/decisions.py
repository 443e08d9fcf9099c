"""Carries out decisions of the controller, and answers once they are committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.controller.configs import ConfigChange, alter_configs
from ottla.controller.decision import Decision
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.message import Message


class Result(Protocol):
    """The result for one item of a request."""

    @property
    def error(self) -> ApiError | None: ...


R = TypeVar("R", bound=Result)


def carry_out(
    node: Node,
    context: RequestContext,
    decision: Decision[R],
    respond: Callable[[Sequence[tuple[R, ApiError | None]]], Message],
    *,
    validate_only: bool = False,
) -> None:
    """Commit a decision made on the controller's latest image, then answer the request.

    `respond` gets each result with its error, if any. An error that relies on uncommitted changes
    means nothing if these fail, so the failure takes its place.
    """
    is_doubtful = node.controller.has_uncommitted
    reply = context.defer()

    def done(failure: ApiError | None) -> None:
        results: list[tuple[R, ApiError | None]] = []
        for result in decision.results:
            error = failure or result.error if is_doubtful else result.error or failure
            results.append((result, error))
        reply.send(respond(results))

    node.controller.submit([] if validate_only else decision.records, done)


def error_fields(error: ApiError | None) -> tuple[ErrorCode, str | None]:
    """Return the error code and the message of one result."""
    return (ErrorCode.NONE, None) if error is None else (error.code, error.message)


class ChangedResource(NamedTuple):
    """The result of changing the settings of a resource, with the fields of the response."""

    error_code: ErrorCode
    error_message: str | None
    resource_type: int
    resource_name: str


def change_configs(
    node: Node,
    context: RequestContext,
    changes: Sequence[ConfigChange],
    respond: Callable[[Sequence[ChangedResource]], Message],
    *,
    validate_only: bool,
) -> None:
    """Change the settings of some resources, each as a whole or not at all, then answer."""
    carry_out(
        node,
        context,
        alter_configs(node.controller.latest_image, node.config, changes),
        lambda results: respond(
            [
                ChangedResource(*error_fields(error), changed.resource_type, changed.resource_name)
                for changed, error in results
            ]
        ),
        validate_only=validate_only,
    )
