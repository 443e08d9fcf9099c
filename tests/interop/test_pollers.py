"""Real clients with brokers that use poll, or kqueue as far as Linux can imitate it."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

import pytest

from ottla.server.poller import VARIABLE
from ottla.testing import Cluster
from tests.harness.batches import batch_of, records_of
from tests.harness.model import EARLIEST, Client
from tests.harness.raw import RawConnection
from tests.harness.topics import create_topic, fetch, fetch_fields, produce
from tests.support import fake_kqueue

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("OTTLA_TEST_BOOTSTRAP")), reason="this is about Ottla itself"
)


@pytest.fixture(params=["poll", "kqueue"])
def cluster(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv(VARIABLE, request.param)
    for name in vars(fake_kqueue):
        if name.startswith(("KQ_", "kqueue", "kevent")):
            monkeypatch.setattr(select, name, getattr(fake_kqueue, name), raising=False)
    with Cluster() as running:
        yield running


def test_a_client_uses_it(client: Client, cluster: Cluster) -> None:
    values = [b"%d" % number * 5000 for number in range(300)]
    with client.producer(cluster.bootstrap_servers) as producer:
        for value in values:
            producer.send("t", value)
        assert len(producer.flush()) == len(values)
    with client.consumer(cluster.bootstrap_servers) as consumer:
        consumer.assign({("t", 0): EARLIEST})
        assert [message.value for message in consumer.take(len(values))] == values


def test_a_slow_reader_and_one_that_hangs_up_while_it_waits(cluster: Cluster) -> None:
    servers = cluster.bootstrap_servers
    create_topic(servers, "t")
    with RawConnection(servers) as raw:
        for _ in range(8):
            produce(raw, "t", batch_of([bytes(900_000)]))
        with RawConnection(servers, receive_buffer=4096) as slow, RawConnection(servers) as waiting:
            asked = [
                slow.send(
                    "fetch",
                    12,
                    **fetch_fields({"t": {0: 0}}, max_bytes=10**7, partition_max_bytes=10**7),
                )
                for _ in range(3)
            ]
            waiting.send("fetch", 12, **fetch_fields({"t": {0: 8}}, max_wait_ms=60_000))
            waiting.close()
            assert len(records_of(fetch(raw, "t", 7).records)) == 1, "others are served meanwhile"
            for correlation_id in asked:
                answer = slow.receive("fetch", 12, correlation_id)
                assert len(answer.responses[0].partitions[0].records) > 7_000_000
        assert produce(raw, "t", batch_of([b"v"])).base_offset == 8
    assert "ottla_unsent_bytes 0\n" in cluster.metrics()
