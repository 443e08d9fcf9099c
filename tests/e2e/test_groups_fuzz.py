"""Damaged requests about groups: nobody else's group suffers, now or after a restart.

The corpus is what members and administrators of both protocols really sent, through a proxy.
OTTLA_FUZZ_CASES and OTTLA_FUZZ_SEED make longer and other runs.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import kafka
import pytest
from confluent_kafka import admin as cka

from tests.harness.capture import CapturingProxy
from tests.harness.deadline import eventually
from tests.harness.group_broker import GROUP_SETTINGS, await_coordinator
from tests.harness.member.kafkapython import POLL_MS
from tests.harness.mutation import Mutator
from tests.harness.process import BrokerProcess
from tests.harness.raw import API_KEYS, ConnectionClosed, RawConnection
from tests.harness.topics import create_topic

CASES = int(os.environ.get("OTTLA_FUZZ_CASES", "6000")) // 2
SEED = int(os.environ.get("OTTLA_FUZZ_SEED", "1"))
MIB = 1 << 20
PATIENCE_S = 1.0
GROUP_APIS = {
    API_KEYS[name]
    for name in (
        *("offset_commit", "offset_fetch", "find_coordinator", "join_group", "heartbeat"),
        *("leave_group", "sync_group", "describe_groups", "list_groups", "delete_groups"),
        *("offset_delete", "consumer_group_heartbeat", "consumer_group_describe"),
    )
}
PARKS = {API_KEYS["join_group"], API_KEYS["sync_group"]}
ASK_AGAIN = struct.pack(">ihhih", 10, API_KEYS["api_versions"], 0, 0x0BADCAFE, -1)


@pytest.fixture
def fuzzed(tmp_path: Path) -> Iterator[tuple[BrokerProcess, list[bytes]]]:
    """Yield a broker, and the requests about groups that real clients sent to it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    with CapturingProxy() as proxy:
        settings = {**GROUP_SETTINGS, "advertised.listeners": f"PLAINTEXT://{proxy.address}"}
        with BrokerProcess(tmp_path / "data", port=port, settings=settings) as broker:
            broker.bootstrap_servers = proxy.target = f"127.0.0.1:{port}"
            create_topic(proxy.address, "captured", 3)
            await_coordinator(proxy.address)
            live_in_groups(proxy.address)
            frames = [frame for frame in proxy.frames() if api_of(frame) in GROUP_APIS]
            kinds = {(frame[:4], len(frame) // 16): frame for frame in frames}
            yield broker, list(kinds.values())


def live_in_groups(address: str) -> None:
    for name, settings in (
        ("range", {"partition.assignment.strategy": "range"}),
        ("cooperative", {"partition.assignment.strategy": "cooperative-sticky"}),
        ("static", {"group.instance.id": "one"}),
        ("new", {"group.protocol": "consumer"}),
        ("new-static", {"group.protocol": "consumer", "group.instance.id": "two"}),
    ):
        live_as_member(address, name, settings)
    consumer = kafka.KafkaConsumer("captured", bootstrap_servers=address, group_id="python")
    # A poll that ends while it joins may lose what is assigned: see harness/member/kafkapython.py.
    eventually(lambda: consumer.poll(POLL_MS) or consumer.assignment(), "partitions")
    consumer.commit({kafka.TopicPartition("captured", 0): kafka.OffsetAndMetadata(1, "", -1)})
    consumer.close()
    admin = cka.AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.list_consumer_groups().result(30)
    for described in admin.describe_consumer_groups(["range", "new"]).values():
        described.result(30)
    partition = ck.TopicPartition("captured", 0)
    asked = ck.ConsumerGroupTopicPartitions("range", [partition])
    for found in admin.list_consumer_group_offsets([asked]).values():
        found.result(30)
    with kafka.KafkaAdminClient(bootstrap_servers=address) as python:
        python.delete_group_offsets("python", [kafka.TopicPartition("captured", 0)])
    for deleted in admin.delete_consumer_groups(["python"]).values():
        deleted.result(30)


def live_as_member(address: str, group: str, settings: dict[str, str]) -> None:
    """Join, get partitions, commit and leave."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "enable.auto.commit": False,
            "log_level": 0,
            **settings,
        }
    )
    consumer.subscribe(["captured" if group != "new" else "^capt.*"])
    eventually(lambda: consumer.poll(0.1) or consumer.assignment(), "partitions")
    consumer.commit(offsets=[ck.TopicPartition("captured", 0, 1)], asynchronous=False)
    consumer.close()


def api_of(frame: bytes) -> int:
    return int.from_bytes(frame[:2], "big")


def ends(broker: BrokerProcess, frame: bytes) -> bool:
    """Return whether a connection that sent a frame and a good request is answered or closed."""
    patience_s = 0.02 if api_of(frame) in PARKS else PATIENCE_S
    with RawConnection(broker.bootstrap_servers, timeout_s=patience_s) as connection:
        try:
            connection.send_bytes(struct.pack(">i", len(frame)) + frame + ASK_AGAIN)
            while connection.receive_frame()[:4] != ASK_AGAIN[8:12]:
                pass
        except (ConnectionClosed, ConnectionError):
            return True
        except TimeoutError:
            return api_of(frame) in PARKS
    return True


def committed(address: str, group: str) -> int:
    with RawConnection(address) as raw:
        topics = [{"name": "captured", "partition_indexes": [1]}]

        def fetch():  # type: ignore[no-untyped-def]
            asked = [{"group_id": group, "topics": topics}]
            (found,) = raw.request("offset_fetch", 8, groups=asked).groups
            return found if found.error_code == 0 else None

        return int(eventually(fetch, "offsets").topics[0].partitions[0].committed_offset)


@pytest.mark.slow
def test_damaged_requests_harm_no_other_group(fuzzed: tuple[BrokerProcess, list[bytes]]) -> None:
    broker, corpus = fuzzed
    assert {api_of(frame) for frame in corpus} == GROUP_APIS
    mine = ck.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "bystander"})
    mine.commit(offsets=[ck.TopicPartition("captured", 1, 42)], asynchronous=False)
    mine.close()
    before = broker.rss_bytes()
    mutator = Mutator(SEED, corpus)
    for number in range(CASES):
        frame = mutator.frame()
        assert ends(broker, frame), f"case {number} of seed {SEED} hung: {frame.hex()}"
        assert broker.running, f"case {number} of seed {SEED} killed it: {frame.hex()}"
    assert "unexpected error" not in broker.errors
    assert broker.rss_bytes() - before < 100 * MIB
    assert committed(broker.bootstrap_servers, "bystander") == 42
    assert broker.stop() == 0
    broker.start()
    assert committed(broker.bootstrap_servers, "bystander") == 42
    live_as_member(broker.bootstrap_servers, "after", {"group.protocol": "consumer"})
    live_as_member(broker.bootstrap_servers, "bystander", {})
    assert "cannot be loaded" not in broker.errors
