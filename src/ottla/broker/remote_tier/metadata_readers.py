"""Read partitions of `__remote_log_metadata`: those led here from the log, others by fetching.

Only a leader knows how much is committed, so a follower of the partition asks it as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.broker.remote_tier.metadata_state import MetadataState
from ottla.model.errors import ApiError
from ottla.model.ids import REMOTE_LOG_METADATA_TOPIC
from ottla.model.steps import Steps
from ottla.ports import Peer, Response
from ottla.replication.fetch_session import FINAL_EPOCH
from ottla.replication.partition import Partition
from ottla.replication.replica_fetch_codec import (
    FETCH_VERSION,
    Position,
    decode_reply,
    encode_request,
)
from ottla.wire.api_table import ApiKey
from ottla.wire.codec import decoder, encoder
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node

_Answer: TypeAlias = tuple[int, bytes, int, int]
"""What a fetch has brought of a partition: its index, batches, high watermark, log start."""
_LATEST: Final = -1
_LIST_VERSION: Final = 7
READ_BYTES: Final = 64 * 1024
MAX_WAIT_MS: Final = 500
RETRY_MS: Final = 200
TIMEOUT_MS: Final = 30_000


class LocalReader:
    """Reads a partition that this broker leads, whenever its high watermark has moved."""

    def __init__(self, node: Node, partition: Partition, state: MetadataState) -> None:
        self._node = node
        self._partition = partition
        self._state = state
        self._is_reading = False
        self._is_closed = False
        partition.watchers[self] = False
        self.partition_changed()

    def close(self) -> None:
        """Stop reading."""
        self._is_closed = True
        self._partition.watchers.pop(self, None)

    def partition_changed(self) -> None:
        """Read what is new, after the read that is under way."""
        if not self._is_reading:
            self._is_reading = True
            self._node.timers.at(self._node.monotonic_ms, self._begin)

    def _begin(self) -> None:
        self._node.sliced_work.run(self._read(), lambda: not self._is_closed)

    def _read(self) -> Steps[None]:
        state = self._state
        while True:
            leader, log = self._partition.leader, self._partition.log
            if leader is None or log is None or self._partition.removed:
                break
            try:
                state.next_offset = max(state.next_offset, log.log_start_offset)
                records = log.read(
                    state.next_offset, READ_BYTES, log.high_watermark, at_least_one=True
                )
                data = b"" if records is None else records.read()
            except OSError as error:
                self._node.storage_failed(self._partition, error)
                break
            except ApiError:
                break
            if not data:
                if leader.start_offset <= log.high_watermark:
                    state.is_caught_up = True
                break
            yield from state.apply(data)
        self._is_reading = False


class LeaderFetcher:
    """Fetches the partitions that another broker leads, one request at a time."""

    def __init__(self, node: Node, peer: Peer, topic_id: bytes) -> None:
        self._node = node
        self._peer = peer
        self._topic_id = topic_id
        self.states: dict[int, MetadataState] = {}
        """The state of each partition that is fetched."""
        self._is_busy = False
        self._is_closed = False

    def close(self) -> None:
        """Stop fetching."""
        self._is_closed = True
        self._peer.close()

    def fetch(self) -> None:
        """Ask for what is new, unless a request is under way."""
        if self._is_busy or self._is_closed or not self.states:
            return
        positions = [
            Position(self._topic_id, index, -1, state.next_offset, -1, -1)
            for index, state in self.states.items()
        ]
        limits = MAX_WAIT_MS, 1, READ_BYTES * 4, READ_BYTES
        body = encode_request(-1, -1, limits, (0, FINAL_EPOCH), positions, ())
        self._is_busy = True
        try:
            self._peer.send(ApiKey.FETCH, FETCH_VERSION, body, TIMEOUT_MS, self._received)
        except BlockingIOError:
            self._retry()

    def _received(self, result: Response | OSError) -> None:
        if self._is_closed:
            return
        if isinstance(result, OSError):
            self._retry()
            return
        reply = decode_reply(result.buffer, result.start, result.end)
        answers: list[_Answer] = []
        has_failed = bool(reply.error)
        for fetched in reply.partitions:
            state = self.states.get(fetched.partition_index)
            if fetched.error or state is None:
                has_failed = has_failed or bool(fetched.error)
                continue
            data = bytes(result.view[fetched.start : fetched.end])
            answers.append(
                (fetched.partition_index, data, fetched.high_watermark, fetched.log_start_offset)
            )
        self._node.sliced_work.run(self._apply(answers, has_failed))

    def _apply(self, answers: list[_Answer], has_failed: bool) -> Steps[None]:
        at_the_end: list[int] = []
        for index, data, high_watermark, log_start_offset in answers:
            state = self.states.get(index)
            if state is None:
                continue
            state.next_offset = max(state.next_offset, log_start_offset)
            yield from state.apply(data)
            if state.next_offset >= high_watermark and not state.is_caught_up:
                at_the_end.append(index)
        if at_the_end:
            self._confirm(at_the_end)
        elif has_failed:
            self._retry()
        else:
            self._go_on()

    def _go_on(self) -> None:
        self._is_busy = False
        self.fetch()

    def _confirm(self, indexes: list[int]) -> None:
        """Ask where partitions end: the high watermark of a new leader may be an old one.

        It answers this only when it knows how much is committed (KIP-207).
        """
        asked = [ListOffsetsPartition(partition_index=each, timestamp=_LATEST) for each in indexes]
        topic = ListOffsetsTopic(name=REMOTE_LOG_METADATA_TOPIC, partitions=asked)
        body = encoder(ListOffsetsRequest, _LIST_VERSION)(ListOffsetsRequest(topics=[topic]))
        try:
            self._peer.send(ApiKey.LIST_OFFSETS, _LIST_VERSION, body, TIMEOUT_MS, self._confirmed)
        except BlockingIOError:
            self._retry()

    def _confirmed(self, result: Response | OSError) -> None:
        if self._is_closed:
            return
        if isinstance(result, OSError):
            self._retry()
            return
        view = result.view[result.start : result.end].toreadonly()
        response, _ = decoder(ListOffsetsResponse, _LIST_VERSION)(view, 0, len(view))
        is_certain = True
        for topic in response.topics:
            for answer in topic.partitions:
                state = self.states.get(answer.partition_index)
                if answer.error_code:
                    is_certain = False
                elif state is not None and state.next_offset >= answer.offset:
                    state.is_caught_up = True
        if is_certain:
            self._go_on()
        else:
            self._retry()

    def _retry(self) -> None:
        self._is_busy = True

        def again() -> None:
            self._is_busy = False
            self.fetch()

        self._node.timers.at(self._node.clock.monotonic_ms() + RETRY_MS, again)
