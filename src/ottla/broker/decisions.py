"""Carrying out what the controller decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.broker.node import Node
from ottla.controller.configs import ConfigChange, alter_configs
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.message import Message


def carry_out(node: Node, records: Sequence[Message], *, validate_only: bool) -> ApiError | None:
    """Write the records of a decision; the error that then holds for all it would have done."""
    if validate_only:
        return None
    try:
        node.controller.write(records)
    except ApiError as error:
        return error
    return None


def error_fields(error: ApiError | None) -> tuple[ErrorCode, str | None]:
    """Code and message for the result of one thing that was asked."""
    return (ErrorCode.NONE, None) if error is None else (error.code, error.message)


class ChangedResource(NamedTuple):
    """What became of a change of settings, with the fields of its result on the wire."""

    error_code: ErrorCode
    error_message: str | None
    resource_type: int
    resource_name: str


def change_configs(
    node: Node, changes: Sequence[ConfigChange], *, validate_only: bool
) -> list[ChangedResource]:
    """Change the settings of some resources, each as a whole or not at all."""
    decision = alter_configs(node.image, node.config, changes)
    failure = carry_out(node, decision.records, validate_only=validate_only)
    return [
        ChangedResource(
            *error_fields(changed.error or failure), changed.resource_type, changed.resource_name
        )
        for changed in decision.results
    ]
