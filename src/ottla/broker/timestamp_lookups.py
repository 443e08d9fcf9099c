"""Lookups by timestamp of one request, one partition after the other.

Most are answered at once. Where a batch is compressed or large, a helper process searches it, and
the next lookup waits until it has: so one request has one batch in memory, however many
partitions it names. A lookup in the remote tier waits until its objects are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic, TypeVar

from ottla.broker.context import RequestContext
from ottla.log.record_search import (
    STEPS_OF_REQUEST,
    NeedsRecordSearch,
    RecordSearch,
    SearchBudget,
)
from ottla.model.errors import ErrorCode
from ottla.model.steps import Steps
from ottla.ports import TaskFailed
from ottla.records.batch import CorruptBatch
from ottla.records.timestamp_search import TASK, result_of
from ottla.tiered.not_cached import NotCached
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.broker.node import Node

A = TypeVar("A")


class TimestampLookups(Generic[A]):
    """The lookups of a request that are not done yet."""

    def __init__(
        self,
        node: Node,
        asked: Iterable[A],
        look_up: Callable[[A, RecordSearch], None],
        refuse: Callable[[A, ErrorCode], None],
    ) -> None:
        """Make lookups: `look_up` does one of them and may raise NeedsRecordSearch or NotCached."""
        self._node = node
        self._helpers = node.ports.helpers
        self._left = iter(asked)
        self._current: A | None = None
        """The lookup that is being done, None between two."""
        self._look_up = look_up
        self._refuse = refuse
        self._budget = SearchBudget(STEPS_OF_REQUEST)
        self._search = RecordSearch(self._budget)
        self._reply: RequestContext | None = None
        self._respond: Callable[[], Message] | None = None

    def run(self) -> Steps[bool]:
        """Do all lookups up to one that waits for a helper process; return True if none does."""
        while (current := self._begin()) is not None:
            try:
                self._look_up(current, self._search)
            except NeedsRecordSearch as needed:
                if self._submit(needed):
                    return False
            except NotCached as missing:
                self._await_tier(missing)
                return False
            self._next()
            yield
        return True

    def _await_tier(self, missing: NotCached) -> None:
        """Go on when a read from the remote tier has ended, or took too long."""
        node, waits_for = self._node, self._asked_now()
        wait_ms = node.config.tiered.remote_list_offsets_request_timeout_ms
        is_over = False

        def go_on() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                timer.cancel()
                self._go_on()

        def give_up() -> None:
            if not is_over:
                self._refuse(waits_for, ErrorCode.REQUEST_TIMED_OUT)
                self._next()
                go_on()

        timer = node.timers.at(node.clock.monotonic_ms() + wait_ms, give_up)
        missing.then(go_on)

    def _begin(self) -> A | None:
        """Return the lookup to do: the present one, else the next one."""
        if self._current is None:
            self._current = next(self._left, None)
        return self._current

    def answer_later(self, reply: RequestContext, respond: Callable[[], Message]) -> None:
        """Answer the request when the last lookup is done; `run` has returned False."""
        self._reply, self._respond = reply, respond

    def _go_on(self) -> None:
        reply = self._reply
        assert reply is not None
        if reply.is_wanted:
            reply.run_in_slices(self._finish(reply))

    def _finish(self, reply: RequestContext) -> Steps[None]:
        respond = self._respond
        assert respond is not None
        if (yield from self.run()):
            yield from reply.send_in_slices(respond())

    def _next(self) -> None:
        self._current = None
        self._search = RecordSearch(self._budget)

    def _asked_now(self) -> A:
        assert self._current is not None
        return self._current

    def _submit(self, needed: NeedsRecordSearch) -> bool:
        def finish(result: bytes | TaskFailed) -> None:
            try:
                if isinstance(result, TaskFailed):
                    raise result
                self._search.remember(needed.batch, result_of(result))
            except TaskFailed:
                self._refuse(self._asked_now(), ErrorCode.KAFKA_STORAGE_ERROR)
                self._next()
            except CorruptBatch:
                self._refuse(self._asked_now(), ErrorCode.CORRUPT_MESSAGE)
                self._next()
            self._go_on()

        try:
            self._helpers.submit(TASK, needed.request, finish)
        except TaskFailed:
            self._refuse(self._asked_now(), ErrorCode.KAFKA_STORAGE_ERROR)
            return False
        return True
