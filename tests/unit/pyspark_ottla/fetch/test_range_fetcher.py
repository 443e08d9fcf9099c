"""Fetches from scripted brokers: leaders that move, preferred replicas, invalid responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.errors import ClientError, ProtocolViolation, Refused
from ottla.model.errors import ErrorCode
from ottla.records.control import ControlType, build_marker
from ottla.records.record import build_batch
from ottla.wire.apis import ApiKey
from ottla.wire.message import Message
from ottla.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pyspark_ottla.fetch.offset_range import OffsetRange
from pyspark_ottla.fetch.window import Window
from pyspark_ottla.options.read_settings import ReadSettings
from pyspark_ottla.source.range_reader import read_ranges

TOPIC_ID = b"0123456789abcdef"
END = 30
MakeSettings = Callable[..., ReadSettings]
Answer = Callable[[int, FetchRequest], PartitionData]


def batch_at(offset: int, **options: Any) -> bytes:
    """Return a batch of ten records that contains the offset."""
    base = offset // 10 * 10
    records = [(None, b"v%d" % (base + n), 0, ()) for n in range(10)]
    return bytes(build_batch(records, base_offset=base, **options))


def records_at(offset: int, request: FetchRequest) -> PartitionData:
    return PartitionData(
        high_watermark=END,
        last_stable_offset=END,
        records=batch_at(offset) if offset < END else b"",
    )


def refusal(code: ErrorCode) -> Answer:
    return lambda offset, request: PartitionData(error_code=code)


class Brokers:
    """Scripted brokers 0, 1, ... with one topic, led by `leader`. `answers` has their responses."""

    def __init__(self, brokers: list[Any]) -> None:
        self.brokers = brokers
        self.leader = 0
        self.answers: list[list[Answer]] = [[] for _ in brokers]
        self.asked: list[tuple[int, int]] = []
        for number, broker in enumerate(brokers):
            broker.handlers[ApiKey.METADATA] = self._metadata
            broker.handlers[ApiKey.FETCH] = self._fetch(number)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(str(broker.address) for broker in self.brokers)

    def _metadata(self, request: Message) -> MetadataResponse:
        partition = MetadataResponsePartition(partition_index=0, leader_id=self.leader)
        topic = MetadataResponseTopic(name="t", topic_id=TOPIC_ID, partitions=[partition])
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=n, host=b.address.host, port=b.address.port)
                for n, b in enumerate(self.brokers)
            ],
            topics=[topic],
        )

    def _fetch(self, number: int) -> Callable[[Message], Message]:
        def answer(request: Message) -> FetchResponse:
            assert isinstance(request, FetchRequest)
            offset = request.topics[0].partitions[0].fetch_offset
            self.asked.append((number, offset))
            script = self.answers[number]
            data = (script.pop(0) if script else records_at)(offset, request)
            topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])
            return FetchResponse(responses=[topic])

        return answer


@pytest.fixture(autouse=True, params=["usual", "tiny"])
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test twice: with the usual window, and with a few bytes at a time."""
    if request.param == "tiny":
        monkeypatch.setattr("pyspark_ottla.fetch.range_fetcher.Window", lambda: Window(40))


@pytest.fixture
def brokers(start_broker: Callable[[], Any]) -> Brokers:
    return Brokers([start_broker(), start_broker()])


def read(settings: ReadSettings, start: int = 0, end: int = END) -> list[int]:
    ranges = [OffsetRange("t", TOPIC_ID, 0, start, end)]
    return [o for batch in read_ranges(ranges, settings) for o in batch["offset"].to_pylist()]


def test_the_next_fetch_begins_where_the_last_ended(
    brokers: Brokers, settings_for: MakeSettings
) -> None:
    assert read(settings_for(brokers.bootstrap_servers), 3, 27) == list(range(3, 27))
    assert brokers.asked == [(0, 3), (0, 10), (0, 20)]


def test_a_leader_that_moved_is_looked_up(brokers: Brokers, settings_for: MakeSettings) -> None:
    def move(offset: int, request: FetchRequest) -> PartitionData:
        brokers.leader = 1
        return PartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)

    brokers.answers[0] = [records_at, move]
    assert read(settings_for(brokers.bootstrap_servers)) == list(range(END))
    assert brokers.asked == [(0, 0), (0, 10), (1, 10), (1, 20)]


@pytest.mark.parametrize(
    "code",
    [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR],
)
def test_what_passes_is_tried_again(
    brokers: Brokers, settings_for: MakeSettings, code: ErrorCode
) -> None:
    brokers.answers[0] = [refusal(code), refusal(code)]
    assert read(settings_for(brokers.bootstrap_servers)) == list(range(END))


def test_what_does_not_pass_is_an_error_in_time(
    brokers: Brokers, settings_for: MakeSettings
) -> None:
    brokers.answers[0] = [refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 1000
    with pytest.raises(Refused, match="t-0: NOT_LEADER_OR_FOLLOWER"):
        read(settings_for(brokers.bootstrap_servers, request_timeout_ms=300))


def test_what_cannot_pass_is_an_error_at_once(brokers: Brokers, settings_for: MakeSettings) -> None:
    brokers.answers[0] = [refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    with pytest.raises(Refused, match="TOPIC_AUTHORIZATION_FAILED"):
        read(settings_for(brokers.bootstrap_servers))
    assert len(brokers.asked) == 1


def test_a_hung_up_connection_is_opened_again(brokers: Brokers, settings_for: MakeSettings) -> None:
    def hang_up(offset: int, request: FetchRequest) -> PartitionData:
        raise ConnectionError

    brokers.answers[0] = [records_at, hang_up]
    assert read(settings_for(brokers.bootstrap_servers)) == list(range(END))


def test_the_follower_that_the_leader_prefers(brokers: Brokers, settings_for: MakeSettings) -> None:
    racks = []

    def prefer(offset: int, request: FetchRequest) -> PartitionData:
        racks.append(request.rack_id)
        return PartitionData(preferred_read_replica=1, high_watermark=END, records=b"")

    brokers.answers[0] = [prefer]
    assert read(settings_for(brokers.bootstrap_servers, rack="here")) == list(range(END))
    assert racks == ["here"]
    assert brokers.asked == [(0, 0), (1, 0), (1, 10), (1, 20)]


def test_the_follower_that_is_preferred_with_records(
    brokers: Brokers, settings_for: MakeSettings
) -> None:
    def prefer(offset: int, request: FetchRequest) -> PartitionData:
        data = records_at(offset, request)
        data.preferred_read_replica = 1
        return data

    brokers.answers[0] = [prefer]
    assert read(settings_for(brokers.bootstrap_servers, rack="here")) == list(range(END))
    assert brokers.asked == [(0, 0), (1, 10), (1, 20)]


def test_a_follower_that_lags_or_refuses_sends_back_to_the_leader(
    brokers: Brokers, settings_for: MakeSettings
) -> None:
    def prefer(offset: int, request: FetchRequest) -> PartitionData:
        return PartitionData(preferred_read_replica=1, high_watermark=END, records=b"")

    brokers.answers[0] = [prefer]
    brokers.answers[1] = [records_at, refusal(ErrorCode.OFFSET_OUT_OF_RANGE)]
    assert read(settings_for(brokers.bootstrap_servers, rack="here")) == list(range(END))
    assert brokers.asked == [(0, 0), (1, 0), (1, 10), (0, 10), (0, 20)]


def test_nothing_below_the_log_end_covers_the_range(
    brokers: Brokers, settings_for: MakeSettings
) -> None:
    """Check a range whose last records were removed by compaction."""
    brokers.answers[0] = [
        records_at,
        lambda offset, request: PartitionData(high_watermark=END, records=b""),
    ]
    assert read(settings_for(brokers.bootstrap_servers)) == list(range(10))


def test_an_open_transaction_is_named(brokers: Brokers, settings_for: MakeSettings) -> None:
    def held_back(offset: int, request: FetchRequest) -> PartitionData:
        return PartitionData(high_watermark=END, last_stable_offset=10, records=b"")

    brokers.answers[0] = [held_back] * 100_000
    settings = settings_for(brokers.bootstrap_servers, read_committed=True, request_timeout_ms=200)
    with pytest.raises(ClientError, match=r"transaction that is still open .* from 10 on"):
        read(settings)


def test_aborted_transactions_are_named_by_the_fetch(
    brokers: Brokers, settings_for: MakeSettings
) -> None:
    def with_abort(offset: int, request: FetchRequest) -> PartitionData:
        assert request.isolation_level == 1
        marker = build_marker(
            ControlType.ABORT,
            producer_id=5,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=0,
            base_offset=20,
        )
        transactional = {"producer_id": 5, "producer_epoch": 0, "is_transactional": True}
        return PartitionData(
            high_watermark=END,
            last_stable_offset=END,
            aborted_transactions=[AbortedTransaction(producer_id=5, first_offset=10)],
            records=batch_at(0) + batch_at(10, **transactional) + bytes(marker),
        )

    brokers.answers[0] = [with_abort]
    settings = settings_for(brokers.bootstrap_servers, read_committed=True)
    assert read(settings, 0, 21) == list(range(10))


def test_a_batch_cut_short_is_asked_for_in_full(
    brokers: Brokers, settings_for: MakeSettings
) -> None:
    """Check a partition whose first batch was cut off by the limit of the response."""
    limits = []

    def cut(offset: int, request: FetchRequest) -> PartitionData:
        limits.append(request.topics[0].partitions[0].partition_max_bytes)
        return PartitionData(high_watermark=END, records=batch_at(offset)[:50])

    brokers.answers[0] = [cut]
    settings = settings_for(brokers.bootstrap_servers, max_partition_fetch_bytes=50)
    assert read(settings) == list(range(END))
    assert limits == [50]


def test_records_that_were_not_asked_for(brokers: Brokers, settings_for: MakeSettings) -> None:
    brokers.answers[0] = [lambda offset, request: PartitionData(records=batch_at(0))]
    with pytest.raises(ProtocolViolation, match=r"asked for offset 15, .* records up to 9"):
        read(settings_for(brokers.bootstrap_servers), 15)


def test_bytes_that_are_no_batches(brokers: Brokers, settings_for: MakeSettings) -> None:
    brokers.answers[0] = [
        lambda offset, request: PartitionData(records=batch_at(0) + b"\xff" * 200),
    ]
    with pytest.raises(ClientError, match="t-0 has a damaged batch"):
        read(settings_for(brokers.bootstrap_servers))


def test_partitions_that_were_not_asked_for(brokers: Brokers, settings_for: MakeSettings) -> None:
    brokers.answers[0] = [
        lambda offset, request: PartitionData(partition_index=3, records=batch_at(0)),
    ]
    with pytest.raises(ProtocolViolation, match="partition 3, not asked for"):
        read(settings_for(brokers.bootstrap_servers))


def test_a_response_that_breaks_off_goes_on_behind_what_came(
    brokers: Brokers, settings_for: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_ottla.fetch.range_fetcher.Window", lambda: Window(200))

    def everything(offset: int, request: FetchRequest) -> PartitionData:
        batches = [batch_at(base) for base in range(offset, END, 10)]
        return PartitionData(high_watermark=END, records=b"".join(batches))

    def break_off(frame: bytes) -> bytes:
        if not brokers.asked:
            return frame
        brokers.brokers[0].cut = lambda frame: frame
        return frame[: -len(batch_at(0))]

    brokers.answers[0] = [everything, everything]
    brokers.brokers[0].cut = break_off
    assert read(settings_for(brokers.bootstrap_servers)) == list(range(END))
    assert brokers.asked == [(0, 0), (0, 20)]
