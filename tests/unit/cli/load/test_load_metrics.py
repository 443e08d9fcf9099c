"""The figures of a running load over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from ottla.cli.errors import DataError
from ottla.cli.load.metrics import MetricsServer
from ottla_spark.loads.run.listener import Listener
from ottla_spark.loads.run.tally import Tally


def ask(port: int | None, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as response:
        return str(response.read().decode())


def test_figures_for_prometheus_and_as_json() -> None:
    seen: list[int] = []

    class View(Listener):
        def progress(self, tally: Tally, lag: int) -> None:
            seen.append(lag)

    with MetricsServer(0) as server:
        watched = server.watched(View(), "orders", 'delta:/a"b')
        watched.started(10)
        watched.progress(Tally(records=7, dead_letters=1, files=2, size=99, batches=3), 3)
        watched.started(3)  # the next run counts from 0 again
        watched.progress(Tally(records=3), 0)
        text = ask(server.port, "/metrics")
        assert 'ottla_load_records_total{topic="orders",table="delta:/a\\"b"} 10' in text
        assert 'ottla_load_rows_total{topic="orders",table="delta:/a\\"b"} 9' in text
        assert "# TYPE ottla_load_lag gauge" in text
        (load,) = json.loads(ask(server.port, "/json"))["loads"]
        assert (load["records"], load["bytes"], load["batches"], load["lag"]) == (10, 99, 3, 0)
        with pytest.raises(urllib.error.HTTPError, match="404") as missing:
            ask(server.port, "/")
        missing.value.close()
        with pytest.raises(DataError, match="cannot serve metrics on port"):
            MetricsServer(server.port)
    assert seen == [3, 0]


def test_without_a_port_nothing_is_served() -> None:
    with MetricsServer(None) as server:
        assert server.port is None
