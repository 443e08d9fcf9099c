"""Incremental fetch sessions (KIP-227): only what changed travels, over hundreds of partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.harness.batches import batch_of, records_of
from tests.harness.model import EARLIEST, Client
from tests.harness.raw import Answer, RawConnection
from tests.harness.topics import fetch_fields, produce

FETCH_SESSION_ID_NOT_FOUND = 70
INVALID_FETCH_SESSION_EPOCH = 71
PARTITIONS = 300


def session_fetch(
    raw: RawConnection,
    positions: dict[str, dict[int, int]],
    *,
    session_id: int,
    epoch: int,
    **options: Any,
) -> Answer:
    return raw.request(
        "fetch",
        12,
        **fetch_fields(positions, session_id=session_id, session_epoch=epoch, **options),
    )


def open_session(raw: RawConnection, positions: dict[str, dict[int, int]]) -> int:
    answer = session_fetch(raw, positions, session_id=0, epoch=0)
    assert answer.error_code == 0
    assert answer.session_id > 0
    session_id: int = answer.session_id
    return session_id


def answered_partitions(answer: Answer) -> list[int]:
    return sorted(each.partition_index for topic in answer.responses for each in topic.partitions)


def test_consumers_read_hundreds_of_partitions(
    client: Client, raw: RawConnection, make_topic: Callable[..., str], bootstrap_servers: str
) -> None:
    topic = make_topic(PARTITIONS)
    with client.consumer(bootstrap_servers) as consumer:
        consumer.assign(dict.fromkeys(((topic, index) for index in range(PARTITIONS)), EARLIEST))
        for round_number in range(2):
            sent = {}
            for index in range(0, PARTITIONS, 7):
                sent[index] = b"%d-%d" % (index, round_number)
                produce(raw, topic, batch_of([sent[index]]), partition=index)
            messages = consumer.take(len(sent), 30)
            assert {message.partition: message.value for message in messages} == sent
            assert {message.offset for message in messages} == {round_number}


def test_the_first_fetch_names_every_partition_and_opens_a_session(
    raw: RawConnection, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(5)
    answer = session_fetch(raw, {topic: dict.fromkeys(range(5), 0)}, session_id=0, epoch=0)
    assert answer.session_id > 0
    assert answered_partitions(answer) == [0, 1, 2, 3, 4]


def test_an_incremental_fetch_names_only_what_changed(
    raw: RawConnection, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(5)
    session_id = open_session(raw, {topic: dict.fromkeys(range(5), 0)})
    answer = session_fetch(raw, {}, session_id=session_id, epoch=1)
    assert (answer.session_id, answered_partitions(answer)) == (session_id, [])

    produce(raw, topic, batch_of([b"v"]), partition=3)
    answer = session_fetch(raw, {}, session_id=session_id, epoch=2)
    assert answered_partitions(answer) == [3]
    assert len(records_of(answer.responses[0].partitions[0].records)) == 1

    answer = session_fetch(raw, {topic: {3: 1}}, session_id=session_id, epoch=3)
    assert answered_partitions(answer) == []


def test_partitions_are_added_and_forgotten(
    raw: RawConnection, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(3)
    session_id = open_session(raw, {topic: {0: 0}})
    answer = session_fetch(raw, {topic: {1: 0}}, session_id=session_id, epoch=1)
    assert answered_partitions(answer) == [1]

    answer = session_fetch(raw, {}, session_id=session_id, epoch=2, forgotten={topic: [0]})
    assert answered_partitions(answer) == []
    for partition in (0, 1):
        produce(raw, topic, batch_of([b"v"]), partition=partition)
    answer = session_fetch(raw, {}, session_id=session_id, epoch=3)
    assert answered_partitions(answer) == [1]


def test_a_wrong_epoch_and_an_unknown_session_are_refused(raw: RawConnection, topic: str) -> None:
    session_id = open_session(raw, {topic: {0: 0}})
    answer = session_fetch(raw, {}, session_id=session_id, epoch=7)
    assert answer.error_code == INVALID_FETCH_SESSION_EPOCH
    answer = session_fetch(raw, {}, session_id=session_id + 1_000_000, epoch=1)
    assert answer.error_code == FETCH_SESSION_ID_NOT_FOUND
    answer = session_fetch(raw, {}, session_id=session_id, epoch=1)
    assert answer.error_code == 0, "a refused fetch does not move the session"


def test_a_session_ends_with_the_final_epoch(raw: RawConnection, topic: str) -> None:
    session_id = open_session(raw, {topic: {0: 0}})
    answer = session_fetch(raw, {topic: {0: 0}}, session_id=session_id, epoch=-1)
    assert (answer.error_code, answer.session_id) == (0, 0)
    answer = session_fetch(raw, {}, session_id=session_id, epoch=1)
    assert answer.error_code == FETCH_SESSION_ID_NOT_FOUND


def test_a_full_fetch_replaces_the_session(raw: RawConnection, topic: str) -> None:
    old = open_session(raw, {topic: {0: 0}})
    answer = session_fetch(raw, {topic: {0: 0}}, session_id=old, epoch=0)
    assert answer.error_code == 0
    assert answer.session_id not in (0, old)
    answer = session_fetch(raw, {}, session_id=old, epoch=1)
    assert answer.error_code == FETCH_SESSION_ID_NOT_FOUND


def test_partitions_with_data_take_turns(
    raw: RawConnection, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(3)
    batch = batch_of([b"x" * 1_000])
    for partition in range(3):
        for _ in range(3):
            produce(raw, topic, batch, partition=partition)
    positions = dict.fromkeys(range(3), 0)
    answer = session_fetch(raw, {topic: positions}, session_id=0, epoch=0, max_bytes=len(batch))
    first_served: list[int] = []
    for epoch in range(1, 9):
        served = {
            each.partition_index: len(records_of(each.records))
            for each_topic in answer.responses
            for each in each_topic.partitions
            if each.records
        }
        assert len(served) == 1, "one batch fills max_bytes"
        first_served += served
        moved = {}
        for partition, count in served.items():
            positions[partition] += count
            moved[partition] = positions[partition]
        answer = session_fetch(
            raw, {topic: moved}, session_id=answer.session_id, epoch=epoch, max_bytes=len(batch)
        )
    # The fetch that opens a session moves nothing to the back of the queue, the later ones do.
    assert set(first_served[:4]) == {0, 1, 2}, "a full partition does not starve the others"
    assert set(first_served[4:7]) == {0, 1, 2}


def test_a_moved_log_start_or_watermark_is_news(raw: RawConnection, topic: str) -> None:
    for _ in range(3):
        produce(raw, topic, batch_of([b"v"]))
    session_id = open_session(raw, {topic: {0: 3}})
    raw.request(
        "delete_records",
        2,
        timeout=10_000,
        topics=[{"name": topic, "partitions": [{"partition_index": 0, "offset": 2}]}],
    )
    answer = session_fetch(raw, {}, session_id=session_id, epoch=1)
    assert answered_partitions(answer) == [0]
    assert answer.responses[0].partitions[0].log_start_offset == 2
