"""`ottla.testing`: the in-process cluster and the pytest plugin, as other projects use them."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import aiokafka
import pytest
import uvloop

from ottla.client.errors import Refused
from ottla.server.errors import StartupError
from ottla.testing import Cluster
from tests.harness.batches import batch_of, records_of
from tests.harness.model import EARLIEST, Client
from tests.harness.raw import RawConnection
from tests.harness.topics import create_topic, fetch, produce

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("OTTLA_TEST_BOOTSTRAP")), reason="this is about Ottla itself"
)


def write(cluster: Cluster, count: int) -> None:
    create_topic(cluster.bootstrap_servers, "t")
    with RawConnection(cluster.bootstrap_servers) as raw:
        for _ in range(count):
            assert produce(raw, "t", batch_of([b"v"])).error_code == 0


def count(cluster: Cluster) -> int:
    with RawConnection(cluster.bootstrap_servers) as raw:
        return len(records_of(fetch(raw, "t", 0).records))


@pytest.mark.parametrize("memory", [False, True])
def test_a_client_uses_it(client: Client, memory: bool) -> None:
    with Cluster(memory=memory) as cluster:
        with client.producer(cluster.bootstrap_servers) as producer:
            producer.send("first", b"hello")
            assert producer.flush()[0].offset == 0
        with client.consumer(cluster.bootstrap_servers) as consumer:
            consumer.assign({("first", 0): EARLIEST})
            assert consumer.take(1)[0].value == b"hello"


def test_it_answers_within_200_ms() -> None:
    took: list[float] = []
    while len(took) < 10 and min(took, default=1.0) >= 0.2:  # a busy machine gets more tries
        start = time.monotonic()
        with Cluster() as cluster, RawConnection(cluster.bootstrap_servers) as raw:
            assert raw.request("metadata", 12, topics=[]).brokers
            took.append(time.monotonic() - start)
    assert min(took) < 0.2, took


def test_its_directory_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Cluster() as cluster:
        write(cluster, 1)
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_given_directory_stays(tmp_path: Path) -> None:
    for expected in (3, 3):
        with Cluster(data_dir=tmp_path / "data") as cluster:
            if not (tmp_path / "data" / "t-0").exists():
                write(cluster, 3)
            assert count(cluster) == expected


def test_restart_keeps_address_and_data() -> None:
    with Cluster() as cluster:
        address = cluster.bootstrap_servers
        write(cluster, 4)
        cluster.restart()
        assert cluster.bootstrap_servers == address
        assert count(cluster) == 4
        cluster.stop()
        assert not cluster.running
        cluster.start()
        assert count(cluster) == 4


def test_several_at_once() -> None:
    with Cluster() as one, Cluster(memory=True) as two:
        assert one.bootstrap_servers != two.bootstrap_servers
        write(one, 1)
        write(two, 2)
        assert (count(one), count(two)) == (1, 2)


def test_properties_are_kafkas() -> None:
    with (
        Cluster(memory=True, properties={"num.partitions": "6", "message.max.bytes": "5000"}) as it,
        RawConnection(it.bootstrap_servers) as raw,
    ):
        (made,) = raw.request(
            "create_topics",
            7,
            timeout=5_000,
            topics=[{"name": "t", "num_partitions": -1, "replication_factor": -1}],
        ).topics
        assert made.num_partitions == 6
        assert produce(raw, "t", batch_of([b"x" * 6_000])).error_code == 10


def test_properties_need_not_be_text() -> None:
    properties = {"num.partitions": 3, "auto.create.topics.enable": False}
    with Cluster(memory=True, properties=properties) as it:
        assert it.create_topic(
            "t", -1, configs={"retention.ms": 60_000, "cleanup.policy": ["delete"]}
        )
        with RawConnection(it.bootstrap_servers) as raw:
            (topic, missing) = raw.request(
                "metadata", 12, topics=[{"name": "t"}, {"name": "missing"}]
            ).topics
        assert len(topic.partitions) == 3
        assert missing.error_code == 3
        with pytest.raises(Refused, match="TOPIC_ALREADY_EXISTS"):
            it.create_topic("t")
    with pytest.raises(TypeError, match=r"num\.partitions"):
        Cluster(properties={"num.partitions": None})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match=r"num\.partitions must be text"):
        Cluster(properties={"num.partitions": b"3"})  # type: ignore[dict-item]


def test_a_wrong_number_of_partitions_is_named() -> None:
    with Cluster(memory=True) as it:
        for wrong in (0, -2):
            with pytest.raises(ValueError, match=f"partitions must be at least 1.* not {wrong}"):
                it.create_topic("t", wrong)
        for wrong_type in ("3", 1.5, True):
            with pytest.raises(TypeError, match="partitions must be a whole number"):
                it.create_topic("t", wrong_type)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="replication_factor must be at least 1"):
            it.create_topic("t", replication_factor=0)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_in_a_coroutine(loop: str) -> None:
    async def use_it() -> list[bytes | None]:
        async with Cluster() as cluster:
            cluster.create_topic("t")
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
            await producer.start()
            try:
                for value in (b"a", b"b"):
                    await producer.send_and_wait("t", value)
            finally:
                await producer.stop()
            consumer = aiokafka.AIOKafkaConsumer(
                "t",
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                auto_offset_reset="earliest",
            )
            await consumer.start()
            try:
                return [(await consumer.getone()).value for _ in range(2)]
            finally:
                await consumer.stop()

    run = asyncio.run if loop == "asyncio" else uvloop.run
    assert run(asyncio.wait_for(use_it(), 30)) == [b"a", b"b"]


def test_a_mistake_in_the_properties_is_named() -> None:
    with pytest.raises(StartupError, match=r"num\.partitons.*num\.partitions"):
        Cluster(properties={"num.partitons": "6"}).start()


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cluster = Cluster(
            data_dir=tmp_path / "data", properties={"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
        )
        with pytest.raises(StartupError, match=str(port)):
            cluster.start()
    assert not cluster.running
    assert not (tmp_path / "data").exists()


def test_a_directory_in_use_is_named(tmp_path: Path) -> None:
    with (
        Cluster(data_dir=tmp_path / "data"),
        pytest.raises(StartupError, match=str(tmp_path / "data")),
    ):
        Cluster(data_dir=tmp_path / "data").start()


def test_misuse_is_told() -> None:
    with pytest.raises(ValueError, match="data_dir"):
        Cluster(memory=True, data_dir="somewhere")
    cluster = Cluster(memory=True)
    with pytest.raises(RuntimeError, match="not running"):
        _ = cluster.bootstrap_servers
    cluster.stop()
    with cluster, pytest.raises(RuntimeError, match="already running"):
        cluster.start()


def test_nothing_is_left_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with Cluster() as cluster:
            write(cluster, 1)
    assert len(os.listdir("/proc/self/fd")) <= before


SOMEBODY_ELSES_TESTS = """
import confluent_kafka
import pytest
import uvloop

def test_one(kafka_cluster, kafka_topic):
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers})
    told = []
    producer.produce(kafka_topic, b"v", on_delivery=lambda error, message: told.append(error))
    assert producer.flush(10) == 0
    assert told == [None]

seen = set()

@pytest.mark.parametrize("number", [1, 2])
def test_names(kafka_topic, kafka_bootstrap_servers, number):
    assert kafka_topic not in seen
    seen.add((kafka_topic, kafka_bootstrap_servers))
    assert len({address for _, address in seen}) == 1
"""


def run_pytest(directory: Path, tests: str, ini: str = "") -> subprocess.CompletedProcess[str]:
    (directory / "test_somebody_else.py").write_text(tests, encoding="utf-8")
    (directory / "pytest.ini").write_text("[pytest]\n" + ini, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(directory)],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_plugin_needs_no_configuration(tmp_path: Path) -> None:
    ended = run_pytest(tmp_path, SOMEBODY_ELSES_TESTS)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "3 passed" in ended.stdout


CONFIGURED_TESTS = """
import re
import pytest
import uvloop

@pytest.mark.parametrize("text", ["übermäßig", "日本", "a b/c", "x" * 300, "..", ""])
def test_every_name_is_a_topic(kafka_cluster, kafka_topic, text):
    assert re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", kafka_topic)
    assert kafka_cluster.create_topic(kafka_topic) == kafka_topic

def partitions(cluster, name):
    import confluent_kafka
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"}
    )
    try:
        return len(consumer.list_topics(name, 10).topics[name].partitions)
    finally:
        consumer.close()

def test_settings_come_from_the_ini_file(kafka_cluster, kafka_topic):
    kafka_cluster.create_topic(kafka_topic)
    assert partitions(kafka_cluster, kafka_topic) == 5

def test_a_cluster_of_its_own(kafka_cluster, kafka_cluster_per_test):
    assert kafka_cluster.bootstrap_servers != kafka_cluster_per_test.bootstrap_servers
    kafka_cluster_per_test.create_topic("mine", partitions=2)
    kafka_cluster_per_test.restart()
    with pytest.raises(Exception, match="UNKNOWN_TOPIC"):  # storage is memory
        from ottla.client.address import parse_addresses
        from ottla.client.cluster import Client
        from ottla.client.topics.topics import describe_topics
        with Client(parse_addresses(kafka_cluster_per_test.bootstrap_servers)) as client:
            describe_topics(client, ["mine"])
"""


def test_the_plugin_is_configured_in_the_ini_file(tmp_path: Path) -> None:
    ini = "ottla_storage = memory\nottla_properties =\n    num.partitions = 5\n"
    ended = run_pytest(tmp_path, CONFIGURED_TESTS, ini)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "8 passed" in ended.stdout


OVERRIDING_TESTS = """
import pytest
import uvloop

@pytest.fixture(scope="session")
def kafka_properties():
    return {"num.partitions": 3, "auto.create.topics.enable": False}

def test_fails(kafka_cluster):
    import os, signal, socket
    host, port = kafka_cluster.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
        assert connection.recv(1) == b""
    assert False

def test_passes(kafka_cluster):
    pass
"""


def test_the_broker_log_is_shown_for_a_failed_test(tmp_path: Path) -> None:
    ended = run_pytest(tmp_path, OVERRIDING_TESTS)
    assert "1 failed, 1 passed" in ended.stdout, ended.stdout + ended.stderr
    assert "Ottla broker log" in ended.stdout
    assert "closing the connection" in ended.stdout.partition("Ottla broker log")[2]


def test_messages_of_processes_have_one_time(tmp_path: Path) -> None:
    ended = run_pytest(tmp_path, OVERRIDING_TESTS, "ottla_processes = true\n")
    said = ended.stdout.partition("Ottla broker log")[2]
    (line,) = (line for line in said.splitlines() if "closing the connection" in line)
    assert re.match(r"\[[\d:,]{12}\] broker 1: closing", line), line


@pytest.mark.parametrize(
    "ini",
    ["ottla_storage = tape\n", "ottla_properties = num.partitions\n", "ottla_brokers = none\n"],
)
def test_a_wrong_ini_value_is_named(tmp_path: Path, ini: str) -> None:
    ended = run_pytest(tmp_path, "def test_one(kafka_cluster): pass\n", ini)
    assert ended.returncode != 0
    assert ini.partition(" ")[0] in ended.stdout + ended.stderr


def test_the_plugin_imports_nothing_heavy() -> None:
    program = (
        "import sys, pytest; before = set(sys.modules); import ottla.testing.plugin\n"
        "print(sorted(name for name in set(sys.modules) - before if name.startswith('ottla')))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout.strip() == str(
        [
            "ottla",
            "ottla.testing",
            "ottla.testing.broker_log",
            "ottla.testing.cluster",
            "ottla.testing.plugin",
        ]
    )


BROKERS_TESTS = """
def test_brokers_come_from_the_ini_file(kafka_cluster, kafka_bootstrap_servers, kafka_topic):
    assert len(kafka_bootstrap_servers.split(",")) == 3
    kafka_cluster.create_topic(kafka_topic)
    assert kafka_cluster.leader(kafka_topic) in (1, 2, 3)
"""


def test_the_plugin_runs_several_brokers(tmp_path: Path) -> None:
    ended = run_pytest(tmp_path, BROKERS_TESTS, "ottla_brokers = 3\nottla_storage = memory\n")
    assert ended.returncode == 0, ended.stdout
