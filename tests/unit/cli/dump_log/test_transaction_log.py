from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.cli.dump_log.command import dump
from ottla.coordinator.transactions.records import (
    PartitionsOfTopic,
    TransactionLogKey,
    TransactionLogValue,
    encode,
)
from ottla.coordinator.transactions.transaction_state import TransactionState
from ottla.records.control import ControlType, build_marker
from ottla.records.record import build_batch


def _rows(path: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    assert dump([str(path)], transactions=True, as_json=True) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [line for line in lines if line["kind"] == "record"]


def test_transactions_and_tombstones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = TransactionLogKey(transactional_id="id")
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=3,
        transaction_status=TransactionState.PREPARE_COMMIT,
        transaction_partitions=[PartitionsOfTopic(topic="t", partition_ids=[0, 2])],
    )
    records = [encode((key, value)), encode((key, None)), (b"\0\x09x", b"\0\0")]
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(build_batch([(key, value, 1000, ()) for key, value in records]))
    prepared, deleted, unknown = _rows(path, capsys)
    assert prepared["type"] == deleted["type"] == "TransactionLog"
    assert prepared["key"] == {"transactionalId": "id"}
    shown = prepared["value"]
    assert isinstance(shown, dict)
    assert (shown["producerId"], shown["producerEpoch"]) == (7, 3)
    assert shown["transactionStatus"] == "PREPARE_COMMIT"
    assert shown["transactionPartitions"] == [{"topic": "t", "partitionIds": [0, 2]}]
    assert deleted["value"] is None
    assert unknown["type"] == "kind 9"


def test_the_state_is_the_first_thing_in_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ongoing = TransactionLogValue(
        producer_id=7,
        producer_epoch=3,
        transaction_timeout_ms=60_000,
        transaction_status=TransactionState.ONGOING,
        transaction_partitions=[PartitionsOfTopic(topic="t", partition_ids=list(range(100)))],
        transaction_start_timestamp_ms=0,
    )
    record = encode((TransactionLogKey(transactional_id="id"), ongoing))
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(build_batch([(*record, 1000, ())]))
    assert dump([str(path)], transactions=True) == 0
    (line,) = [each for each in capsys.readouterr().out.splitlines() if "ONGOING" in each]
    assert (
        "ONGOING producer 7/3, timeout 60000 ms, started 1970-01-01 00:00:00.000, t-0 t-1 t-2"
        in line
    )
    assert "characters)" in line, "the list of partitions is cut"


def test_markers_have_the_epoch_of_the_coordinator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "00000000000000000000.log"
    marker = build_marker(
        ControlType.ABORT, producer_id=7, producer_epoch=3, coordinator_epoch=5, timestamp=1
    )
    path.write_bytes(marker)
    (row,) = _rows(path, capsys)
    assert (row["controlType"], row["coordinatorEpoch"]) == ("ABORT", 5)
