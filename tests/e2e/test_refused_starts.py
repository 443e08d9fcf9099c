"""Starts that cannot go well: a clear message, a non-zero exit, and nothing touched."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.batches import batch_of
from tests.harness.process import BrokerProcess, files_under, properties_text, run_ottla
from tests.harness.raw import RawConnection
from tests.harness.topics import create_topic, produce


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        ended = run_ottla("up", "--port", port, "--data-dir", str(tmp_path / "data"))
    assert ended.returncode != 0
    assert port in ended.stderr
    assert "in use" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
    assert not (tmp_path / "data").exists()


def test_a_port_in_use_by_another_broker_leaves_its_data_alone(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    with BrokerProcess(other) as second:
        second.stop()
    before = files_under(other)
    ended = run_ottla("up", "--port", str(broker.port), "--data-dir", str(other))
    assert ended.returncode != 0
    assert files_under(other) == before


def test_a_directory_in_use(broker: BrokerProcess, tmp_path: Path) -> None:
    create_topic(broker.bootstrap_servers, "t")
    ended = run_ottla("up", "--port", "0", "--data-dir", str(tmp_path / "data"))
    assert ended.returncode != 0
    assert str(tmp_path / "data") in ended.stderr
    assert "Traceback" not in ended.stderr
    with RawConnection(broker.bootstrap_servers) as raw:
        assert produce(raw, "t", batch_of([b"v"])).error_code == 0
    assert broker.stop() == 0


def test_a_directory_is_free_again_after_a_kill(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker()
    broker.kill()
    broker.start()
    assert broker.running


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("log.retention.hour", "log.retention.hours"), ("num.partition", "num.partitions")],
)
def test_an_unknown_setting(tmp_path: Path, name: str, suggestion: str) -> None:
    ended = run_ottla(
        "up", "--port", "0", "--data-dir", str(tmp_path / "data"), "--set", f"{name}=1"
    )
    assert ended.returncode != 0
    assert name in ended.stderr
    assert suggestion in ended.stderr
    assert ended.stdout == ""
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [("num.partitions", "many"), ("num.partitions", "0"), ("log.cleanup.policy", "shred")],
)
def test_an_invalid_value(tmp_path: Path, name: str, value: str) -> None:
    ended = run_ottla(
        "up", "--port", "0", "--data-dir", str(tmp_path / "data"), "--set", f"{name}={value}"
    )
    assert ended.returncode != 0
    assert name in ended.stderr
    assert value in ended.stderr
    assert not (tmp_path / "data").exists()


def test_a_properties_file_with_mistakes_names_them_all(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        properties_text(
            {
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(tmp_path / "data"),
                "num.partitons": "3",
                "log.segment.bytes": "large",
            }
        )
    )
    ended = run_ottla("broker", "--config", str(config))
    assert ended.returncode != 0
    assert "num.partitons" in ended.stderr
    assert "log.segment.bytes" in ended.stderr
    assert not (tmp_path / "data").exists()


def test_a_properties_file_that_is_not_there(tmp_path: Path) -> None:
    ended = run_ottla("broker", "--config", str(tmp_path / "no.properties"))
    assert ended.returncode != 0
    assert "no.properties" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_directories_of_two_clusters(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with BrokerProcess(tmp_path / name) as broker:
            broker.stop()
    before = files_under(tmp_path)
    both = f"{tmp_path / 'one'},{tmp_path / 'two'}"
    ended = run_ottla("up", "--port", "0", "--set", f"log.dirs={both}")
    assert ended.returncode != 0
    assert "cluster" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert files_under(tmp_path) == before


def test_a_directory_of_another_cluster_than_the_settings_say(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker()
    assert broker.stop() == 0
    assert broker.data_dir is not None
    before = files_under(broker.data_dir)
    other = ("--set", "cluster.id=AAAAAAAAAAAAAAAAAAAAAA")
    ended = run_ottla("up", "--port", "0", "--data-dir", str(broker.data_dir), *other)
    assert ended.returncode == 1
    assert "not to AAAAAAAAAAAAAAAAAAAAAA" in ended.stderr
    assert "use another directory" in ended.stderr
    assert files_under(broker.data_dir) == before


def test_a_directory_of_another_node(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker()
    assert broker.stop() == 0
    assert broker.data_dir is not None
    before = files_under(broker.data_dir)
    ended = run_ottla(
        "up", "--port", "0", "--data-dir", str(broker.data_dir), "--set", "node.id=4711"
    )
    assert ended.returncode != 0
    assert "4711" in ended.stderr
    assert files_under(broker.data_dir) == before


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a directory")
    ended = run_ottla("up", "--port", "0", "--data-dir", str(tmp_path / "data"))
    assert ended.returncode != 0
    assert str(tmp_path / "data") in ended.stderr
    assert "Traceback" not in ended.stderr


def test_damaged_meta_properties(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker()
    broker.stop()
    assert broker.data_dir is not None
    meta = broker.data_dir / "meta.properties"
    meta.write_text(re.sub(r"cluster\.id=.*", "", meta.read_text()))
    ended = run_ottla("up", "--port", "0", "--data-dir", str(broker.data_dir))
    assert ended.returncode != 0
    assert "meta.properties" in ended.stderr
    assert "Traceback" not in ended.stderr
