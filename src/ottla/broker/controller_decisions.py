"""Carries out decisions of the controller, and answers once they are committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from ottla.broker.context import RequestContext
from ottla.broker.node import Node
from ottla.controller.configs import ChangedConfig, ConfigChange, alter_configs
from ottla.controller.decision import Decision, plain
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps, in_steps
from ottla.wire.discard import discard_in_steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.message import Message


class Result(Protocol):
    """The result for one item of a request."""

    @property
    def error(self) -> ApiError | None: ...


R = TypeVar("R", bound=Result)
T = TypeVar("T")


def carry_out(
    node: Node,
    context: RequestContext,
    decide: Callable[[MetadataImage], Steps[Decision[R]]],
    respond: Callable[[Sequence[tuple[R, ApiError | None]]], Message | Steps[Message]],
    *,
    validate_only: bool = False,
) -> None:
    """Make a decision on the controller's latest image, commit it, then answer the request.

    `respond` gets each result with its error, if any. It returns the response, or steps that make
    it. An error that relies on uncommitted changes
    means nothing if these fail, so the failure takes its place.
    """
    is_doubtful = False
    results: list[R] = []
    context.defer()

    def records(image: MetadataImage) -> Steps[Sequence[Message]]:
        nonlocal is_doubtful
        is_doubtful = node.controller.has_uncommitted
        decision = yield from decide(image)
        results.extend(decision.results)
        return [] if validate_only else decision.records

    def answer(failure: ApiError | None) -> Steps[None]:
        def with_error(result: R) -> tuple[R, ApiError | None]:
            if is_doubtful:
                return result, failure or result.error
            return result, result.error or failure

        answers = yield from in_steps(with_error, results)
        response = respond(answers)
        if not isinstance(response, Message):
            response = yield from response
        yield from context.send_in_slices(response)
        yield from discard_in_steps(answers, results)

    node.controller.decide(records, lambda failure: context.run_in_slices(answer(failure)))


def carry_out_whole(
    node: Node,
    context: RequestContext,
    decide: Callable[[MetadataImage], list[Message] | Steps[list[Message]]],
    respond: Callable[[ApiError | None], Message],
    *,
    validate_only: bool = False,
) -> None:
    """Carry out a request that succeeds or fails as a whole.

    `decide` returns the records, or steps that make them, or raises ApiError.
    """
    reply = context.defer()
    refusal: ApiError | None = None

    def records(image: MetadataImage) -> Steps[Sequence[Message]]:
        nonlocal refusal
        yield
        try:
            decided = decide(image)
            if not isinstance(decided, list):
                decided = yield from decided
        except ApiError as error:
            refusal = plain(error)
            return []
        return [] if validate_only else decided

    node.controller.decide(records, lambda failure: reply.send(respond(refusal or failure)))


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
    resources: Sequence[T],
    change: Callable[[T], ConfigChange],
    respond: Callable[[Sequence[ChangedResource]], Message],
    *,
    validate_only: bool,
) -> None:
    """Change the settings of some resources, each as a whole or not at all, then answer."""

    def decide(image: MetadataImage) -> Steps[Decision[ChangedConfig]]:
        changes = yield from in_steps(change, resources)
        return (yield from alter_configs(image, node.config, changes))

    carry_out(
        node,
        context,
        decide,
        lambda results: respond(
            LazyList(
                lambda each: ChangedResource(
                    *error_fields(each[1]), each[0].resource_type, each[0].resource_name
                ),
                results,
            )
        ),
        validate_only=validate_only,
    )
