"""A broken invariant ends the process, in a handler or in a timer, and leaves no clean mark."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.broker.node import Node
from ottla.server.runner import BrokerThread

CLEAN_SHUTDOWN_MARK = ".kafka_cleanshutdown"
API_VERSIONS = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"

PLANT = """
import sys
from ottla.broker.node import Node
from ottla.server.main import run

def broken(*args):
    assert False, "a planted bug"

start = Node.start
def start_broken(self):
    start(self)
    if sys.argv[2] == "handler":
        self.handle = broken
    else:
        self.timers.at(self.monotonic_ms, broken)

Node.start = start_broken
properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": sys.argv[1]}
sys.exit(run(properties, on_ready=lambda at: print(at, flush=True)))
"""


@pytest.mark.parametrize("where", ["handler", "timer"])
def test_a_broken_invariant_ends_the_process(tmp_path: Path, where: str) -> None:
    broker = subprocess.Popen(
        [sys.executable, "-c", PLANT, str(tmp_path), where],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert broker.stdout is not None
        host, _, port = broker.stdout.readline().strip().rpartition(":")
        if where == "handler":
            with socket.create_connection((host, int(port)), timeout=10) as client:
                client.sendall(API_VERSIONS)
                assert client.recv(1) == b""
        _, errors = broker.communicate(timeout=10)
    finally:
        broker.kill()
        broker.wait()
    assert broker.returncode == 1
    assert "the broker ends after an unexpected error" in errors
    assert "AssertionError: a planted bug" in errors
    assert not (tmp_path / CLEAN_SHUTDOWN_MARK).exists()


def test_an_embedded_broker_says_that_an_error_ended_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> None:
        raise KeyError("a planted bug")

    start = Node.start

    def start_broken(self: Node) -> None:
        start(self)
        self.handle = broken

    monkeypatch.setattr(Node, "start", start_broken)
    reports: list[str] = []
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
    broker = BrokerThread(properties, report=reports.append)
    broker.start()
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(API_VERSIONS)
        assert client.recv(1) == b""
    with pytest.raises(RuntimeError, match="unexpected error") as failure:
        broker.stop()
    assert isinstance(failure.value.__cause__, KeyError)
    assert "a planted bug" in reports[-1]
