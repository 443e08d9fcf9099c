"""Two lives of one broker id: the one that came back later counts, the other one has to go."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import AdminClient

from ottla.server.local_cluster import free_ports
from tests.harness.acked_load import AckedLoad
from tests.harness.deadline import eventually
from tests.harness.fault_cluster import NODES, FaultCluster

TOPIC = "ledger"


def test_a_past_life_that_wakes_up_is_told_to_go(tmp_path: Path) -> None:
    with FaultCluster(tmp_path) as cluster:
        cluster.create_topic(TOPIC, 3)
        load = AckedLoad(cluster.bootstrap_servers, TOPIC, 3)
        load.start()
        load.await_more(20, "start")
        n = next(n for n in NODES if n != cluster.controller())
        others = ",".join(cluster.address(other) for other in NODES if other != n)
        admin = AdminClient({"bootstrap.servers": others, "log_level": 0})
        cluster.pause(n)
        eventually(
            lambda: n not in admin.list_topics(timeout=10).brokers, "the paused one is fenced", 60
        )
        (port,) = free_ports(1)
        second = cluster.begin_second_life(n, port, tmp_path / "second")
        load.await_more(20, "a second life")
        cluster.resume(n)
        eventually(lambda: not cluster.is_running(n), "the first life has ended", 60)
        messages = cluster.log_file(n).read_text()
        assert f"another broker with the id {n} is running at 127.0.0.1:{port}" in messages
        load.await_more(20, "the first life has ended")
        assert second.poll() is None
        load.finish()
        load.check()
