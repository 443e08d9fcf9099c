"""Errors of the client. Their messages are written for the user of a command."""

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
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)

NOT_TRIED = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""Retriable errors after which the broker has certainly not executed the request."""


class ClientError(Exception):
    """A failure. The message says what is wrong and, if possible, what to do."""


class Unreachable(ClientError):
    """No connection could be opened, so no request was sent."""


class AuthenticationFailed(ClientError):
    """A certificate, password or SASL mechanism is wrong, on either side."""


class ConnectionLost(ClientError):
    """The connection broke during a request. The broker may or may not have executed it."""


class Unsendable(ClientError):
    """A request has a number that is too large, or text that is not valid Unicode."""


class TimedOut(ClientError):
    """The deadline of the operation passed."""


class ProtocolViolation(ClientError):
    """The broker sent bytes that violate Kafka's protocol."""


class UnsupportedByBroker(ClientError):
    """The broker and this client have no common version of an API."""


class Refused(ClientError):
    """The broker answered with an error code."""

    def __init__(self, code: int, subject: str, message: str | None = None) -> None:
        name = error_name(code)
        super().__init__(f"{subject}: {message} ({name})" if message else f"{subject}: {name}")
        self.code = code
        self.reason = message

    @property
    def retriable(self) -> bool:
        """True if the same request may succeed later."""
        return self.code in RETRIABLE


def error_name(code: int) -> str:
    """Return Kafka's name of an error code, or the number if the code is unknown."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error code {code}"


def check(code: int, subject: str, message: str | None = None) -> None:
    """Raise Refused if `code` is an error."""
    if code != ErrorCode.NONE:
        raise Refused(code, subject, message)
