"""Nodes that are only controllers, and nodes that are only brokers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ottla.cli.main import main
from tests.e2e.test_cli_cluster import _free_ports
from tests.e2e.test_metrics import METRICS, read
from tests.harness.deadline import eventually
from tests.harness.process import COMMAND


def started(
    path: Path, node_id: int, role: str, port: int, controller: int, *options: str, voters: str = ""
) -> subprocess.Popen[str]:
    """Start a node. The quorum is dynamic, unless these are its voters."""
    name = "CONTROLLER" if role == "controller" else "PLAINTEXT"
    settings = {
        "node.id": node_id,
        "process.roles": role,
        "cluster.id": "cluster-of-two-kinds",
        "listeners": f"{name}://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": voters,
        "controller.quorum.bootstrap.servers": "" if voters else f"127.0.0.1:{controller}",
        "log.dirs": path / f"data-{node_id}",
    }
    file = path / f"{node_id}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = [*COMMAND, "broker", "--config", str(file), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_broker_is_added_and_unregistered(tmp_path: Path) -> None:
    controller, one, two = _free_ports(3)
    running = [started(tmp_path, 101, "controller", controller, controller)]
    try:
        ready = f"Ottla is ready at 127.0.0.1:{controller} as a controller"
        assert first_line(running[0]) == ready
        for node_id, port in ((1, one), (2, two)):
            running.append(started(tmp_path, node_id, "broker", port, controller))
            assert first_line(running[-1]) == f"Ottla is ready at 127.0.0.1:{port}"
        server = ("--bootstrap-server", f"127.0.0.1:{one}")
        assert main(["topics", "create", "t", "--replication-factor", "2", *server]) == 0
        gone = running.pop()
        gone.kill()
        gone.communicate()
        words = ["brokers", "unregister", "2", "--force", *server]
        eventually(lambda: main(words) == 0, "the broker is noticed to be gone", 60)
    finally:
        for process in running:
            process.kill()
            process.communicate()


def test_a_voter_is_added_and_removed_by_its_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two, port = _free_ports(3)
    server = ("--bootstrap-server", f"127.0.0.1:{port}")
    running = [started(tmp_path, 101, "controller", one, one)]
    try:
        assert first_line(running[0]).endswith("as a controller")
        running.append(started(tmp_path, 102, "controller", two, one))
        running.append(started(tmp_path, 1, "broker", port, one))
        assert first_line(running[1]).endswith("as a controller")
        assert first_line(running[2]).startswith("Ottla is ready")
        for words, code, message in (
            (["add", "1"], 1, "node 1 has not registered as a controller"),
            (["add", "7"], 1, "no node with the id 7 follows the metadata"),
            (["remove", "102"], 1, "controller 102 is no voter"),
            (["add", "102"], 0, "controller 102: is a voter now"),
            (["add", "102"], 1, "controller 102 is a voter already"),
            (["remove", "101"], 0, "controller 101: is no voter any more"),
        ):
            assert main(["quorum", *words, *server]) == code
            shown = capsys.readouterr()
            assert message in shown.out + shown.err
    finally:
        for process in running:
            process.kill()
            process.communicate()


def test_a_broker_joins_the_only_voter_which_counts_its_requests(tmp_path: Path) -> None:
    controller, port = _free_ports(2)
    voters = f"101@127.0.0.1:{controller}"
    metrics = ("--metrics-port", "0")
    running = [
        started(tmp_path, 101, "controller", controller, controller, *metrics, voters=voters)
    ]
    try:
        ready = f"Ottla is ready at 127.0.0.1:{controller} as a controller"
        assert first_line(running[0]) == ready
        found = METRICS.search(first_line(running[0]))
        assert found is not None
        running.append(started(tmp_path, 1, "broker", port, controller, voters=voters))
        assert first_line(running[-1]) == f"Ottla is ready at 127.0.0.1:{port}"
        assert main(["topics", "create", "t", "--bootstrap-server", f"127.0.0.1:{port}"]) == 0
        samples = read(f"http://127.0.0.1:{found.group(1)}")
        for api in ("BrokerRegistration", "CreateTopics"):
            labels = f'api="{api}",listener="controller"'
            assert samples[f"ottla_requests_total{{{labels}}}"] == 1
    finally:
        for process in running:
            process.kill()
            process.communicate()
