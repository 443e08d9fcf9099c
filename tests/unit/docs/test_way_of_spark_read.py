"""The way of a Spark read in docs/architecture.md is the way that a read takes.

The parts of Spark that call the data source are left out: this process plans the read and runs
its only task.
"""

from __future__ import annotations

import time

import pytest

from tests.harness.entered_files import EnteredFiles, assert_way

pytest.importorskip("pyspark", reason="needs ottla[spark]")

from ottla.client.address import parse_addresses
from ottla.client.cluster import Client
from ottla.client.producer.producer import Producer
from ottla.testing import Cluster
from pyspark_ottla.data_source import DefaultSource

pytestmark = pytest.mark.interpreted

RECORDS = 3
COMPILED = "src/pyspark_ottla/decode/decode_loops.py"


def read(bootstrap_servers: str) -> int:
    """Do what Spark does on the driver and on an executor; return the number of rows."""
    source = DefaultSource({"kafka.bootstrap.servers": bootstrap_servers, "subscribe": "events"})
    reader = source.reader(source.schema())
    (task,) = reader.partitions()
    return sum(batch.num_rows for batch in reader.read(task))


def test_read() -> None:
    entered = EnteredFiles()
    with Cluster(memory=True) as cluster:
        servers = cluster.bootstrap_servers
        with Client(parse_addresses(servers)) as client:
            producer = Producer(client, "events")
            now_ms = int(time.time() * 1000)  # retention would remove older records meanwhile
            for number in range(RECORDS):
                producer.send(None, f"value {number}".encode(), now_ms)
            producer.flush()
        assert read(servers) == RECORDS  # imports and compiles what the way needs
        with entered.in_this_thread():
            assert read(servers) == RECORDS
    assert_way("a Spark read", entered.files, [COMPILED])
