"""`ottla up` as a process: ready line, clean stop, data over restarts."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.batches import batch_of, records_of
from tests.harness.process import BrokerProcess
from tests.harness.raw import RawConnection
from tests.harness.topics import create_topic, fetch, produce

CLEAN_SHUTDOWN_MARK = ".kafka_cleanshutdown"


def test_it_says_where_it_answers(broker: BrokerProcess) -> None:
    assert broker.bootstrap_servers == f"127.0.0.1:{broker.port}"
    with RawConnection(broker.bootstrap_servers) as raw:
        (me,) = raw.request("metadata", 12, topics=[]).brokers
    assert (me.host, me.port) == ("127.0.0.1", broker.port)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(
    start_broker: Callable[..., BrokerProcess], how: signal.Signals, tmp_path: Path
) -> None:
    broker = start_broker()
    create_topic(broker.bootstrap_servers, "t")
    with RawConnection(broker.bootstrap_servers) as raw:
        produce(raw, "t", batch_of([b"v"]))
        start = time.monotonic()
        assert broker.stop(how) == 0
    assert time.monotonic() - start < 5, "an open connection does not hold up the end"
    assert (tmp_path / "data" / CLEAN_SHUTDOWN_MARK).exists()
    assert "Traceback" not in broker.errors


def test_a_waiting_fetch_does_not_hold_up_the_end(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap_servers, "t")
    with RawConnection(broker.bootstrap_servers) as raw:
        raw.send(
            "fetch",
            12,
            max_wait=60_000,
            min_bytes=1,
            max_bytes=1_000,
            topics=[{"topic": "t", "partitions": [{"partition": 0, "partition_max_bytes": 100}]}],
        )
        start = time.monotonic()
        assert broker.stop() == 0
    assert time.monotonic() - start < 5


def test_data_survives_a_clean_stop_and_a_kill(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap_servers, "t", 2)
    written = 0
    for end in (broker.stop, broker.kill, broker.kill, broker.stop):
        with RawConnection(broker.bootstrap_servers) as raw:
            for _ in range(10):
                assert produce(raw, "t", batch_of([b"%d" % written])).base_offset == written
                written += 1
        end()
        broker.start()
        with RawConnection(broker.bootstrap_servers) as raw:
            values = [record.value for record in records_of(fetch(raw, "t", 0).records)]
        assert values == [b"%d" % number for number in range(written)]


def test_the_clean_mark_is_gone_while_it_runs(broker: BrokerProcess, tmp_path: Path) -> None:
    assert not (tmp_path / "data" / CLEAN_SHUTDOWN_MARK).exists()
    broker.stop()
    assert (tmp_path / "data" / CLEAN_SHUTDOWN_MARK).exists()
    broker.start()
    assert not (tmp_path / "data" / CLEAN_SHUTDOWN_MARK).exists()


def test_in_memory_it_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with BrokerProcess(None) as broker:
        create_topic(broker.bootstrap_servers, "t")
        with RawConnection(broker.bootstrap_servers) as raw:
            produce(raw, "t", batch_of([b"v"]))
            assert len(records_of(fetch(raw, "t", 0).records)) == 1
        assert broker.stop() == 0
    assert list(tmp_path.iterdir()) == []


def test_the_files_are_named_as_kafkas(broker: BrokerProcess, tmp_path: Path) -> None:
    create_topic(broker.bootstrap_servers, "t", 2)
    with RawConnection(broker.bootstrap_servers) as raw:
        produce(raw, "t", batch_of([b"v"]), partition=1)
    broker.stop()
    data = tmp_path / "data"
    assert {
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
    } <= {path.name for path in data.iterdir()}
    names = {path.name for path in (data / "t-1").iterdir()}
    assert {
        f"{0:020d}.log",
        f"{0:020d}.index",
        f"{0:020d}.timeindex",
        "partition.metadata",
    } <= names
    assert (data / "t-1" / f"{0:020d}.log").read_bytes()[16] == 2
