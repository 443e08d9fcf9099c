"""What the broker says it can do, and that it does all of it in every version it says."""

from __future__ import annotations

import struct
import uuid

import pytest

from tests.harness.batches import batch_of
from tests.harness.entities import decode_response, encode_request
from tests.harness.raw import API_KEYS, Answer, ConnectionClosed, RawConnection
from tests.harness.topics import topic_id_of

UNSUPPORTED_VERSION = 35
API_VERSIONS = API_KEYS["api_versions"]
# Answered without an error whatever is in the request; the others are checked one by one below.
EMPTY_REQUEST_IS_FINE = (
    "list_offsets",
    "metadata",
    "create_topics",
    "delete_topics",
    "delete_records",
    "offset_for_leader_epoch",
    "describe_configs",
    "alter_configs",
    "describe_log_dirs",
    "create_partitions",
    "incremental_alter_configs",
    "describe_cluster",
    "describe_producers",
)


SERVED = (
    *EMPTY_REQUEST_IS_FINE,
    "produce",
    "fetch",
    "api_versions",
    "init_producer_id",
    "describe_topic_partitions",
)


def advertised(raw: RawConnection) -> dict[int, tuple[int, int]]:
    answer = raw.request(
        "api_versions", 3, client_software_name="ottla-tests", client_software_version="1.0"
    )
    assert answer.error_code == 0
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


def test_every_version_of_api_versions(raw: RawConnection) -> None:
    lists = []
    for version in range(5):
        fields = (
            {} if version < 3 else {"client_software_name": "t", "client_software_version": "1"}
        )
        lists.append(
            {
                (each.api_key, each.min_version, each.max_version)
                for each in raw.request("api_versions", version, **fields).api_keys
            }
        )
    assert all(each == lists[0] for each in lists)


@pytest.mark.parametrize("version", [5, 99, 32_767])
def test_an_unknown_version_is_answered_in_version_0(raw: RawConnection, version: int) -> None:
    header = struct.pack(">hhih", API_VERSIONS, version, 4_711, -1) + b"\x00"
    raw.send_frame(header + b"whatever a later version has to say")
    correlation_id, decoded = decode_response(API_VERSIONS, 0, raw.receive_frame())
    body = Answer(decoded)
    assert correlation_id == 4_711
    assert body.error_code == UNSUPPORTED_VERSION
    assert (API_VERSIONS, 0, 4) in {
        (each.api_key, each.min_version, each.max_version) for each in body.api_keys
    }
    assert raw.request("api_versions", 0).error_code == 0, "the connection goes on"


def test_the_apis_of_this_broker_are_advertised(raw: RawConnection) -> None:
    versions = advertised(raw)
    assert {API_KEYS[api] for api in SERVED} <= set(versions)
    # Clients before librdkafka 2.x look for Produce v0 to tell which codecs a broker knows.
    assert versions[API_KEYS["produce"]][0] == 0
    assert versions[API_KEYS["produce"]][1] >= 12
    assert versions[API_KEYS["fetch"]][1] >= 17


@pytest.mark.parametrize("api", EMPTY_REQUEST_IS_FINE)
def test_an_empty_request_of_every_version_is_answered(raw: RawConnection, api: str) -> None:
    first, last = advertised(raw)[API_KEYS[api]]
    for version in range(first, last + 1):
        raw.send_frame(encode_request(API_KEYS[api], version, version, "t", {}))
        correlation_id, _ = decode_response(API_KEYS[api], version, raw.receive_frame())
        assert correlation_id == version


def test_produce_and_fetch_in_every_version(raw: RawConnection, topic: str) -> None:
    topic_id = topic_id_of(raw, topic)
    versions = advertised(raw)
    offset = 0
    for version in range(3, min(versions[API_KEYS["produce"]][1], 13) + 1):
        named = {"topic_id": topic_id} if version >= 13 else {"name": topic}
        answer = raw.request(
            "produce",
            version,
            acks=-1,
            timeout=10_000,
            topic_data=[
                {**named, "partition_data": [{"index": 0, "records": batch_of([b"%d" % version])}]}
            ],
        )
        (part,) = answer.responses[0].partition_responses
        assert (part.error_code, part.base_offset) == (0, offset), version
        offset += 1
    for version in range(4, min(versions[API_KEYS["fetch"]][1], 18) + 1):
        named = {"topic_id": topic_id} if version >= 13 else {"topic": topic}
        answer = raw.request(
            "fetch",
            version,
            max_wait=0,
            min_bytes=0,
            max_bytes=1_000_000,
            topics=[
                {
                    **named,
                    "partitions": [
                        {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000_000}
                    ],
                }
            ],
        )
        (part,) = answer.responses[0].partitions
        assert (part.error_code, part.high_watermark) == (0, offset), version
        assert part.records


def test_list_offsets_in_every_version(raw: RawConnection, topic: str) -> None:
    first, last = advertised(raw)[API_KEYS["list_offsets"]]
    for version in range(first, min(last, 11) + 1):
        answer = raw.request(
            "list_offsets",
            version,
            replica_id=-1,
            topics=[{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        )
        (part,) = answer.topics[0].partitions
        assert (part.error_code, part.offset) == (0, 0), version


def test_metadata_in_every_version(raw: RawConnection, topic: str) -> None:
    first, last = advertised(raw)[API_KEYS["metadata"]]
    for version in range(first, min(last, 13) + 1):
        (found,) = raw.request("metadata", version, topics=[{"name": topic}]).topics
        assert (found.error_code, found.name, len(found.partitions)) == (0, topic, 1), version
        everything = raw.request("metadata", version, topics=[] if version == 0 else None).topics
        assert topic in {each.name for each in everything}, version
        if version > 0:
            assert raw.request("metadata", version, topics=[]).topics == ()


def test_init_producer_id_in_every_version(raw: RawConnection) -> None:
    first, last = advertised(raw)[API_KEYS["init_producer_id"]]
    for version in range(first, min(last, 5) + 1):
        answer = raw.request("init_producer_id", version, transaction_timeout=60_000)
        assert (answer.error_code, answer.producer_epoch) == (0, 0), version


def test_a_version_never_advertised_closes_the_connection(raw: RawConnection) -> None:
    raw.send_frame(struct.pack(">hhih", API_KEYS["metadata"], 99, 1, -1))
    with pytest.raises(ConnectionClosed):
        raw.receive_frame()


def test_an_unknown_api_closes_the_connection(raw: RawConnection) -> None:
    raw.send_frame(struct.pack(">hhih", 9_999, 0, 1, -1))
    with pytest.raises(ConnectionClosed):
        raw.receive_frame()


def test_pipelined_requests_are_answered_in_order(raw: RawConnection, topic: str) -> None:
    ids = []
    for number in range(200):
        if number % 2:
            ids.append(("metadata", 12, raw.send("metadata", 12, topics=[{"name": topic}])))
        else:
            ids.append(("api_versions", 0, raw.send("api_versions", 0)))
    for api, version, correlation_id in ids:
        raw.receive(api, version, correlation_id)


def test_unknown_tagged_fields_are_skipped(raw: RawConnection, topic: str) -> None:
    frame = encode_request(
        API_KEYS["metadata"],
        12,
        77,
        "t",
        {
            "topics": [{"name": topic, "topic_id": uuid.UUID(int=0)}],
            "allow_auto_topic_creation": False,
        },
    )
    assert frame.endswith(b"\x00")
    tags = b"\x02" + b"\xc8\x01" + b"\x03abc" + b"\xc9\x01" + b"\x00"
    raw.send_frame(frame[:-1] + tags)
    correlation_id, decoded = decode_response(API_KEYS["metadata"], 12, raw.receive_frame())
    body = Answer(decoded)
    assert correlation_id == 77
    assert body.topics[0].error_code == 0


def test_a_null_client_id(bootstrap_servers: str) -> None:
    with RawConnection(bootstrap_servers, client_id=None) as raw:
        assert raw.request("metadata", 12, topics=[]).brokers
