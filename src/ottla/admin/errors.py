"""What can go wrong between a command and a broker, worded for the person at the terminal."""

from __future__ import annotations

from ottla.model.errors import ErrorCode

RETRIABLE = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)

NOT_TRIED = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Retriable, and with certainty nothing was done."""


class AdminError(Exception):
    """A failure whose message says what is wrong and, where that is known, what to do."""


class Unreachable(AdminError):
    """No connection was made, so nothing was asked of a broker."""


class AuthenticationFailed(AdminError):
    """One side could not show who it is: a certificate, a password or a mechanism is wrong."""


class ConnectionLost(AdminError):
    """The connection broke while a request was under way: it may or may not have been done."""


class TimedOut(AdminError):
    """The deadline of the operation passed."""


class ProtocolViolation(AdminError):
    """The other side sent what no Kafka broker sends."""


class UnsupportedByBroker(AdminError):
    """The broker has no version of an API that this client also has."""


class Refused(AdminError):
    """The broker answered with an error code."""

    def __init__(self, code: int, subject: str, message: str | None = None) -> None:
        name = error_name(code)
        super().__init__(f"{subject}: {message} ({name})" if message else f"{subject}: {name}")
        self.code = code
        self.reason = message

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed a moment later."""
        return self.code in RETRIABLE


def error_name(code: int) -> str:
    """Kafka's name of an error code, or the number when it is newer than this program."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error code {code}"


def check(code: int, subject: str, message: str | None = None) -> None:
    """Raise Refused unless `code` means success."""
    if code != ErrorCode.NONE:
        raise Refused(code, subject, message)
