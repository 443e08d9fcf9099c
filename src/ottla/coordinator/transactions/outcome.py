"""The outcome of a request to the transaction coordinator, and the reply that gets it."""

from __future__ import annotations

from collections.abc import Callable

from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from ottla.wire.message import Message


class Outcome(Message):
    """The result of a request, once the records of its decision are committed.

    `partitions` has a code for each partition if these differ.
    """

    __slots__ = ("error_code", "partitions", "producer_epoch", "producer_id")

    def __init__(
        self,
        error_code: ErrorCode = ErrorCode.NONE,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        partitions: list[tuple[TopicPartition, ErrorCode]] | None = None,
    ) -> None:
        self.error_code = error_code
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.partitions = partitions


class WhenCommitted:
    """A reply that calls a function with the outcome."""

    __slots__ = ("_done",)

    def __init__(self, done: Callable[[Outcome], None]) -> None:
        self._done = done

    def send(self, response: Message) -> None:
        """Call the function."""
        assert isinstance(response, Outcome)
        self._done(response)


def refused(response: Message, code: ErrorCode) -> Message:
    """Return the outcome of a request whose records could not be written.

    Descriptions are responses of their own, with an error code.
    """
    if isinstance(response, Outcome):
        return Outcome(code)
    refusal = type(response)()
    refusal.error_code = code  # type: ignore[attr-defined]
    if "transactional_id" in response.__slots__:
        refusal.transactional_id = response.transactional_id  # type: ignore[attr-defined]
    return refusal
