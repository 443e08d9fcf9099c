"""`ottla up --brokers 3`: a cluster on one machine that starts, stops and goes on as a whole."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from tests.harness.deadline import eventually
from tests.harness.process import COMMAND, READY, run_ottla, without_stalls


class Up:
    """A running `ottla up --brokers`."""

    def __init__(self, *words: str) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [*COMMAND, "up", "--port", "0", *words], stdout=pipe, stderr=pipe, text=True
        )
        assert self.process.stdout is not None
        found = READY.search(self.process.stdout.readline())
        assert found is not None, self.process.communicate()[1]
        self.servers = found[1]

    @property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def brokers(self) -> list[psutil.Process]:
        return list(psutil.Process(self.process.pid).children())

    def end(self, signum: signal.Signals) -> str:
        """Send a signal, check that all end well, and return what was said on stderr."""
        children = self.brokers()
        self.process.send_signal(signum)
        _, errors = self.process.communicate(timeout=30)
        assert not any(child.is_running() for child in children)
        return without_stalls(errors)


@contextmanager
def up(*words: str) -> Iterator[Up]:
    running = Up("--brokers", "3", *words)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.communicate()


def test_a_cluster_starts_stops_and_goes_on(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with up("--data-dir", str(data_dir), "--set", "num.partitions=4") as cluster:
        assert len(cluster.servers.split(",")) == 3
        run = run_ottla("topics", "create", "orders", "--bootstrap-server", cluster.servers)
        assert run.returncode == 0, run.stderr
        topic = cluster.admin.list_topics(timeout=10).topics["orders"]
        assert len(topic.partitions) == 4
        assert all(sorted(p.replicas) == [1, 2, 3] for p in topic.partitions.values())
        assert cluster.end(signal.SIGINT) == ""
        assert cluster.process.returncode == 0
    assert sorted(path.name for path in data_dir.iterdir()) == ["broker-1", "broker-2", "broker-3"]
    with up("--data-dir", str(data_dir)) as cluster:
        found = cluster.admin.list_topics(timeout=10)
        assert "orders" in found.topics
        assert sorted(found.brokers) == [1, 2, 3]
        assert cluster.end(signal.SIGTERM) == ""
        assert cluster.process.returncode == 0


def test_the_machine_is_the_rack_of_its_brokers() -> None:
    with up("--memory", "--set", "num.partitions=2") as cluster:
        run = run_ottla("cluster", "info", "--bootstrap-server", cluster.servers, "--json")
        assert run.returncode == 0, run.stderr
        assert run.stdout.count(socket.gethostname()) == 3


def test_a_broker_that_dies_is_named_and_the_others_go_on() -> None:
    with up("--memory") as cluster:
        victim = cluster.brokers()[1]
        victim.kill()
        eventually(
            lambda: len(cluster.admin.list_topics(timeout=10).brokers) == 2, "two brokers are left"
        )
        errors = cluster.end(signal.SIGINT)
        assert f"(process {victim.pid}) has ended: killed by SIGKILL" in errors
        assert re.search(r"broker \d ", errors)
        assert cluster.process.returncode == 1


def test_brokers_end_when_their_parent_is_killed() -> None:
    with up("--memory") as cluster:
        children = cluster.brokers()
        cluster.process.kill()
        _, alive = psutil.wait_procs(children, timeout=20)
        assert alive == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "node.id=7"], "node.id differs from broker to broker: --brokers sets it"),
        (["--set", "num.partitions=x"], r"broker [123]: "),  # whichever is the first to end
    ],
)
def test_refused_options(words: list[str], message: str) -> None:
    run = run_ottla("up", "--memory", "--brokers", "3", "--port", "0", *words)
    assert run.returncode == 1
    assert re.search(message, run.stderr)
    assert run.stdout == ""


def test_too_few_ports() -> None:
    run = run_ottla("up", "--memory", "--brokers", "3", "--port", "65534")
    assert run.returncode == 1
    assert "there are no 3 ports from 65534 on" in run.stderr


def port_after_a_free_one() -> socket.socket:
    """Take a port whose predecessor nobody uses."""
    while True:
        taken = socket.create_server(("127.0.0.1", 0))
        try:
            socket.create_server(("127.0.0.1", taken.getsockname()[1] - 1)).close()
        except OSError:
            taken.close()
        else:
            return taken


def test_a_port_in_use_names_the_broker() -> None:
    with port_after_a_free_one() as taken:
        port = taken.getsockname()[1]
        run = run_ottla("up", "--memory", "--brokers", "2", "--port", str(port - 1))
    assert run.returncode == 1
    assert "broker 2: " in run.stderr
    assert str(port) in run.stderr


def test_data_of_one_and_of_several_brokers_is_not_confused(tmp_path: Path) -> None:
    one, three = tmp_path / "one", tmp_path / "three"
    one.mkdir()
    (one / "meta.properties").write_text("")
    for n in (1, 2, 3):
        (three / f"broker-{n}").mkdir(parents=True)
        (three / f"broker-{n}" / "meta.properties").write_text("")
    run = run_ottla("up", "--brokers", "3", "--data-dir", str(one))
    assert "has the data of a single broker" in run.stderr
    run = run_ottla("up", "--brokers", "2", "--data-dir", str(three))
    assert "has the data of 3 brokers: start it with --brokers 3" in run.stderr
    run = run_ottla("up", "--data-dir", str(three))
    assert "has the data of several brokers: start it with --brokers" in run.stderr
