"""`--metrics-port`: what Prometheus reads from a broker process."""

from __future__ import annotations

import re
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.harness.process import COMMAND, READY, run_ottla

METRICS = re.compile(r"Metrics are at port (\d+)")
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[^}]*\})? (\S+)")


def test_requests_are_counted_and_timed(tmp_path: Path) -> None:
    command = [*COMMAND, "up", "--port", "0", "--metrics-port", "0", "--data-dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            ready = READY.search(broker.stdout.readline())
            metrics = METRICS.search(broker.stdout.readline())
            assert ready is not None
            assert metrics is not None
            url = f"http://127.0.0.1:{metrics.group(1)}"
            server = ("-b", ready.group(1))
            assert run_ottla("topics", "create", "t", "--partitions", "3", *server).returncode == 0
            for _ in range(3):
                words = [*COMMAND, "produce", "t", *server]
                subprocess.run(words, input="a\nb\n", text=True, timeout=20, check=True)
            samples = read(url)
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(f"{url}/", timeout=10)
            # A client that sends nothing keeps others waiting for a moment only.
            with socket.create_connection(("127.0.0.1", int(metrics.group(1)))):
                assert read(url)
        finally:
            broker.terminate()
        assert broker.wait(20) == 0
    assert samples['ottla_requests_total{api="Produce"}'] >= 3
    assert samples['ottla_requests_total{api="CreateTopics"}'] == 1
    assert samples['ottla_request_bytes_total{api="Produce"}'] > 200
    assert samples['ottla_partitions{role="leader"}'] == 3
    assert samples['ottla_request_duration_seconds_count{api="CreateTopics",phase="total"}'] == 1
    assert samples["ottla_connections"] >= 0


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run_ottla(
            *("up", "--port", "0", "--metrics-port", port, "--data-dir", str(tmp_path / "data"))
        )
    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert "--metrics-port" in done.stderr
    assert not (tmp_path / "data").exists()


def read(url: str) -> dict[str, float]:
    """Return the samples by name and labels; every line must have Prometheus' form."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=20) as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        lines = response.read().decode().splitlines()
    samples = {}
    for line in lines:
        if not line.startswith("#"):
            found = SAMPLE.fullmatch(line)
            assert found is not None, line
            samples[found.group(1) + (found.group(2) or "")] = float(found.group(3))
    return samples
