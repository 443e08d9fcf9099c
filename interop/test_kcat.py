"""kcat, a C client people have at hand, against Ottla."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from ottla.testing import Cluster

Run = Callable[..., str]
LINES = [f"line {number}" for number in range(500)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_kcat_produces_kcat_consumes(cluster: Cluster, kcat: Run, codec: str) -> None:
    broker = cluster.bootstrap_servers
    kcat("-P", "-b", broker, "-t", "lines", "-p", "0", "-z", codec, text="\n".join(LINES))
    out = kcat("-C", "-b", broker, "-t", "lines", "-p", "0", "-o", "beginning", "-e", "-q")
    assert out.splitlines() == LINES


def test_kcat_lists_the_cluster(cluster: Cluster, kcat: Run) -> None:
    broker = cluster.bootstrap_servers
    kcat("-P", "-b", broker, "-t", "listed", text="x")
    listing = json.loads(kcat("-L", "-J", "-b", broker))
    assert broker in [item["name"] for item in listing["brokers"]]
    assert "listed" in [item["topic"] for item in listing["topics"]]


def test_kcat_finds_offsets_and_tails(cluster: Cluster, kcat: Run) -> None:
    broker = cluster.bootstrap_servers
    kcat("-P", "-b", broker, "-t", "tail", "-p", "0", text="\n".join(LINES))
    assert "offset 500" in kcat("-Q", "-b", broker, "-t", "tail:0:-1")
    out = kcat("-C", "-b", broker, "-t", "tail", "-p", "0", "-o", "-3", "-e", "-q")
    assert out.splitlines() == LINES[-3:]


def test_kcat_keys_headers_and_nulls(cluster: Cluster, kcat: Run) -> None:
    broker = cluster.bootstrap_servers
    arguments = ("-b", broker, "-t", "keyed", "-p", "0")
    kcat("-P", *arguments, "-K", ":", "-Z", "-H", "trace=42", text="a:1\nb:\n:3")
    out = kcat("-C", *arguments, "-o", "beginning", "-e", "-q", "-J")
    got = [
        (item["key"], item["payload"], item["headers"])
        for item in map(json.loads, out.split("\n")[:-1])
    ]
    assert got == [
        ("a", "1", ["trace", "42"]),
        ("b", None, ["trace", "42"]),
        (None, "3", ["trace", "42"]),
    ]
