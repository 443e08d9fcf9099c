"""Nodes that are only controllers, and nodes that are only brokers."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ottla.cli.main import main
from tests.e2e.test_cli_cluster import _free_ports
from tests.harness.deadline import eventually
from tests.harness.process import COMMAND


def started(
    path: Path, node_id: int, role: str, port: int, controller: int
) -> subprocess.Popen[str]:
    """Start a node; return it when it has said that it is ready."""
    name = "CONTROLLER" if role == "controller" else "PLAINTEXT"
    settings = {
        "node.id": node_id,
        "process.roles": role,
        "cluster.id": "cluster-of-two-kinds",
        "listeners": f"{name}://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "log.dirs": path / f"data-{node_id}",
    }
    file = path / f"{node_id}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = [*COMMAND, "broker", "--config", str(file)]
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
