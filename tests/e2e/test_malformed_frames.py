"""Nonsense on one connection closes that connection and disturbs no other."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import pytest

from tests.harness.batches import batch_of
from tests.harness.process import BrokerProcess
from tests.harness.raw import API_KEYS, ConnectionClosed, RawConnection
from tests.harness.topics import create_topic, fetch, produce

GARBAGE = random.Random(7).randbytes(4_000)
SIZE = struct.Struct(">i")


def frame(body: bytes) -> bytes:
    return SIZE.pack(len(body)) + body


def header(api: str, version: int) -> bytes:
    return struct.pack(">hhih", API_KEYS[api], version, 1, -1)


CLOSED = {
    "a negative size": SIZE.pack(-1),
    "the smallest size": SIZE.pack(-(2**31)),
    "the largest size": SIZE.pack(2**31 - 1) + b"x" * 100,
    "over socket.request.max.bytes": SIZE.pack(104_857_601),
    "size zero": SIZE.pack(0),
    "a size too small for a header": frame(b"\x00\x03"),
    "text": b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
    "a TLS hello": bytes.fromhex("16030100f8010000f40303") + GARBAGE[:240],
    "garbage in a frame": frame(GARBAGE),
    "an API nobody knows": frame(struct.pack(">hhih", 1234, 0, 1, -1)),
    "a negative API": frame(struct.pack(">hhih", -1, 0, 1, -1)),
    "a negative version": frame(struct.pack(">hhih", API_KEYS["metadata"], -1, 1, -1)),
    "a header cut short": frame(struct.pack(">hhi", API_KEYS["metadata"], 12, 1)),
    "a client id longer than the frame": frame(struct.pack(">hhih", 3, 1, 1, 30_000)),
    "a body cut short": frame(header("metadata", 1) + b"\x00\x00"),
    "an array longer than the frame": frame(header("metadata", 1) + SIZE.pack(2**31 - 1)),
    "a compact array longer than memory": frame(
        header("metadata", 12) + b"\x00" + b"\xff\xff\xff\xff\x0f"
    ),
    "a varint without end": frame(header("metadata", 12) + b"\x00" + b"\xff" * 40),
    "a tag section without end": frame(header("metadata", 12) + b"\xff\xff\xff\xff\x0f"),
    "a fetch of two billion topics": frame(
        header("fetch", 11) + struct.pack(">iiiibiii", -1, 0, 0, 1, 0, 0, -1, 2**31 - 1)
    ),
    "a produce of garbage": frame(header("produce", 9) + GARBAGE[:100]),
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("malformed") / "data") as broker:
        create_topic(broker.bootstrap_servers, "t")
        yield broker
        assert broker.stop() == 0
        assert "Traceback" not in broker.errors


@pytest.mark.parametrize("what", CLOSED)
def test_only_the_sender_is_closed(shared: BrokerProcess, what: str) -> None:
    with RawConnection(shared.bootstrap_servers) as other:
        assert other.request("api_versions", 0).error_code == 0
        with RawConnection(shared.bootstrap_servers, timeout_s=2) as sender:
            sender.send_bytes(CLOSED[what])
            assert sender.is_closed_by_peer()
        assert produce(other, "t", batch_of([b"v"])).error_code == 0


def test_good_requests_before_the_bad_one_are_answered(shared: BrokerProcess) -> None:
    with RawConnection(shared.bootstrap_servers) as raw:
        first = raw.send("api_versions", 0)
        second = raw.send("metadata", 12, topics=[])
        raw.send_bytes(SIZE.pack(-5))
        raw.receive("api_versions", 0, first)
        raw.receive("metadata", 12, second)
        assert raw.is_closed_by_peer()


def test_a_frame_in_small_pieces_is_fine(shared: BrokerProcess) -> None:
    body = frame(header("api_versions", 0))
    with RawConnection(shared.bootstrap_servers) as raw:
        for position in range(len(body)):
            raw.send_bytes(body[position : position + 1])
        assert len(raw.receive_frame()) > 10


def test_many_frames_in_one_piece_are_fine(shared: BrokerProcess) -> None:
    with RawConnection(shared.bootstrap_servers) as raw:
        raw.send_bytes(frame(header("api_versions", 0)) * 300)
        for _ in range(300):
            raw.receive_frame()


def test_a_frame_larger_than_any_buffer_is_fine(shared: BrokerProcess) -> None:
    with RawConnection(shared.bootstrap_servers) as raw:
        parts = [batch_of([b"%d" % number * 200_000]) for number in range(5)]
        for part in parts:
            assert produce(raw, "t", part).error_code == 0
        end = fetch(raw, "t", 0).high_watermark
        assert end >= 5
        answer = fetch(raw, "t", end - 5, partition_max_bytes=10_000_000)
        assert answer.records.endswith(parts[-1][61:])


def test_a_string_that_is_not_utf8_is_refused_or_closed(shared: BrokerProcess) -> None:
    with RawConnection(shared.bootstrap_servers) as raw:
        raw.send_bytes(frame(header("metadata", 1) + SIZE.pack(1) + b"\x00\x02\xff\xfe"))
        assert answered_or_closed(raw)


@pytest.mark.parametrize("records", [None, b"", b"\x00", b"\xff" * 61, GARBAGE])
def test_records_that_are_none(shared: BrokerProcess, records: bytes | None) -> None:
    with RawConnection(shared.bootstrap_servers) as raw:
        data = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
        sent = raw.send("produce", 9, acks=-1, timeout=1_000, topic_data=data)
        try:
            answer = raw.receive("produce", 9, sent)
        except ConnectionClosed:
            return
        assert answer.responses[0].partition_responses[0].error_code != 0


def answered_or_closed(raw: RawConnection) -> bool:
    try:
        raw.receive_frame()
    except ConnectionClosed:
        return True
    return True
