"""Damaged frames and batches: the broker lives, stays small, and never leaves anyone hanging.

The corpus is what three real clients sent through a proxy, and one request of each version of
each API. Every case is one connection: a damaged frame, then a good request behind it. The
broker answers or closes within a second, save for a fetch, whose damaged max wait may be long.

OTTLA_FUZZ_CASES and OTTLA_FUZZ_SEED make longer and other runs.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import kafka
import pytest

from tests.harness.aio import Aio
from tests.harness.batches import batch_of
from tests.harness.capture import CapturingProxy
from tests.harness.confluent import Confluent
from tests.harness.deadline import Deadline, eventually
from tests.harness.entities import encode_request
from tests.harness.kafkapython import KafkaPython
from tests.harness.model import EARLIEST
from tests.harness.mutation import Mutator
from tests.harness.process import BrokerProcess
from tests.harness.raw import API_KEYS, ConnectionClosed, RawConnection
from tests.harness.topics import create_topic, fetch, produce

CASES = int(os.environ.get("OTTLA_FUZZ_CASES", "6000"))
SEED = int(os.environ.get("OTTLA_FUZZ_SEED", "1"))
MIB = 1 << 20
PATIENCE_S = 1.0
WAITS_FOR_CONTROLLER = {
    API_KEYS[name]
    for name in (
        *("create_topics", "create_partitions", "delete_topics", "metadata"),
        *("alter_configs", "incremental_alter_configs", "init_producer_id", "find_coordinator"),
    )
    if name in API_KEYS
}
"""APIs that the controller decides, one request after the other."""
ASK_AGAIN = struct.pack(">ihhih", 10, API_KEYS["api_versions"], 0, 0x0BADCAFE, -1)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, list[bytes]]]:
    """Yield a broker, and a corpus of frames that real clients sent to it."""
    directory: Path = tmp_path_factory.mktemp("fuzz")
    with CapturingProxy() as proxy:
        broker = BrokerProcess(
            directory / "data",
            port=free_port(),
            settings={"advertised.listeners": f"PLAINTEXT://{proxy.address}"},
        )
        with broker:
            proxy.target = f"127.0.0.1:{broker.port}"
            use_it(proxy.address)
            broker.bootstrap_servers = proxy.target
            # What clients really sent gets further into the broker, so it is tried more often.
            yield broker, distinct(proxy.frames()) * 5 + requests_of_every_version()


def use_it(address: str) -> None:
    create_topic(address, "captured", 3)
    for client in (Confluent(), KafkaPython(), Aio()):
        for codec in ("none", "gzip", "zstd"):
            with client.producer(address, compression=codec, idempotent=True) as producer:
                for number in range(30):
                    producer.send(
                        "captured", b"%d" % number, partition=number % 3, headers=(("h", b"v"),)
                    )
                producer.flush()
        with client.consumer(address) as consumer:
            consumer.assign({("captured", index): EARLIEST for index in range(3)})
            consumer.take(90)
            consumer.offsets_for_times({("captured", 0): 1})
        with client.admin(address) as admin:
            admin.create_topic(f"by-{client.name}", 2, configs={"retention.ms": "1000000"})
            eventually(partial(admin.topic_configs, "captured"), "configs")
            admin.set_topic_configs("captured", {"retention.ms": "2000000"})
            admin.delete_records("captured", 0, 5)
            admin.describe_topic("captured")
            admin.create_partitions(f"by-{client.name}", 3)
            admin.delete_topic(f"by-{client.name}")
    with kafka.KafkaAdminClient(bootstrap_servers=address) as admin:
        admin.describe_log_dirs()
        admin.describe_producers([kafka.TopicPartition("captured", 0)])
        admin.describe_topic_partitions(["captured"])


def distinct(frames: list[bytes]) -> list[bytes]:
    """Return a few frames of each API, version and size."""
    kinds = {(frame[:4], len(frame) // 16): frame for frame in frames if len(frame) > 8}
    return list(kinds.values())


def requests_of_every_version() -> list[bytes]:
    frames = []
    for key in API_KEYS.values():
        for version in range(19):
            try:
                frames.append(encode_request(key, version, 1, "fuzz", {}))
            except RuntimeError:  # kio knows no such version
                continue
    return frames


def outcome(broker: BrokerProcess, data: bytes) -> str:
    """Send `data` and a good request; return if that was answered, closed or hung."""
    with RawConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S) as connection:
        try:
            connection.send_bytes(data + ASK_AGAIN)
            while True:
                answer = connection.receive_frame()
                if answer[:4] == ASK_AGAIN[8:12]:
                    return "answered"
        except (ConnectionClosed, ConnectionError):
            return "closed"
        except TimeoutError:
            return "hung"


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def check_alive(broker: BrokerProcess, rss_before: int) -> None:
    assert broker.running, f"the broker died: {broker.errors}"
    assert "unexpected error" not in broker.errors
    growth = broker.rss_bytes() - rss_before
    assert growth < 100 * MIB, f"{growth // MIB} MiB more than before"
    with RawConnection(broker.bootstrap_servers) as raw:
        name = f"alive-{os.urandom(4).hex()}"
        create_topic(broker.bootstrap_servers, name)
        assert produce(raw, name, batch_of([b"v"])).error_code == 0
        assert fetch(raw, name, 0).records


def api_of(frame: bytes) -> int:
    return int.from_bytes(frame[:2], "big")


def ends_well(broker: BrokerProcess, frame: bytes) -> bool:
    result = outcome(broker, framed(frame))
    if result != "hung" or api_of(frame) == API_KEYS["fetch"]:
        return True
    if api_of(frame) not in WAITS_FOR_CONTROLLER:
        return False
    # It, or one before it, may make ten thousand partitions, as it was asked to.
    deadline = Deadline(30)
    while result == "hung" and not deadline.passed:
        result = outcome(broker, b"")
    return result == "answered"


@pytest.mark.slow
def test_damaged_frames(fuzzed: tuple[BrokerProcess, list[bytes]]) -> None:
    broker, corpus = fuzzed
    assert {api_of(frame) for frame in corpus} >= set(API_KEYS.values())
    before = broker.rss_bytes()
    mutator = Mutator(SEED, corpus)
    for number in range(CASES):
        frame = mutator.frame()
        assert ends_well(broker, frame), f"case {number} of seed {SEED}: {frame.hex()}"
        assert broker.running, f"case {number} of seed {SEED} killed it: {frame.hex()}"
    check_alive(broker, before)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["delete", "compact", "recompressed"])
def test_damaged_batches(fuzzed: tuple[BrokerProcess, list[bytes]], policy: str) -> None:
    broker, corpus = fuzzed
    settings = (
        {"compression.type": "lz4"} if policy == "recompressed" else {"cleanup.policy": policy}
    )
    create_topic(broker.bootstrap_servers, f"batches-{policy}", 1, settings)
    before = broker.rss_bytes()
    mutator = Mutator(SEED, corpus)
    batches = [
        batch_of([b"value-%d" % number * 20 for number in range(10)], codec=codec)
        for codec in ("none", "gzip", "snappy", "lz4", "zstd")
    ]
    for number in range(CASES // 5):
        batch = mutator.batch(batches[number % len(batches)], sealed=number % 4 != 0)
        data = [{"name": f"batches-{policy}", "partition_data": [{"index": 0, "records": batch}]}]
        frame = encode_request(
            0, 9, number, "fuzz", {"acks": -1, "timeout": 500} | {"topic_data": data}
        )
        assert outcome(broker, framed(frame)) != "hung", f"case {number}: {batch.hex()}"
        assert broker.running, f"case {number} of seed {SEED} killed it: {batch.hex()}"
    check_alive(broker, before)


@pytest.mark.slow
def test_noise(fuzzed: tuple[BrokerProcess, list[bytes]]) -> None:
    broker, corpus = fuzzed
    before = broker.rss_bytes()
    mutator = Mutator(SEED, corpus)
    for number in range(CASES // 5):
        noise = mutator.noise()
        with RawConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S) as connection:
            connection.send_bytes(noise)
        assert broker.running, f"case {number} of seed {SEED} killed it: {noise.hex()}"
    check_alive(broker, before)


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_that_unpacks_to_far_more_than_it_is(
    fuzzed: tuple[BrokerProcess, list[bytes]], codec: str
) -> None:
    broker, _ = fuzzed
    before = broker.rss_bytes()
    bomb = batch_of([b"\x00" * 120_000_000], codec=codec)
    if len(bomb) > 1_048_588:
        bomb = batch_of([b"\x00" * 18_000_000], codec=codec)
    for kind, settings in (
        ("c", {"cleanup.policy": "compact"}),
        ("r", {"compression.type": "lz4"}),
    ):
        name = f"bomb-{codec}-{kind}"
        create_topic(broker.bootstrap_servers, name, 1, settings)
        with RawConnection(broker.bootstrap_servers) as raw:
            produce(raw, name, bomb)  # taken or refused, as long as it is cheap
    check_alive(broker, before)


@pytest.mark.slow
def test_it_starts_again_with_what_it_took(fuzzed: tuple[BrokerProcess, list[bytes]]) -> None:
    broker, _ = fuzzed
    assert broker.stop() == 0
    assert "Traceback" not in broker.errors
    broker.start()
    broker.bootstrap_servers = f"127.0.0.1:{broker.port}"
    check_alive(broker, broker.rss_bytes())
