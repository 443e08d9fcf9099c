"""A stream from topic to topic under many kills, in local mode and on a standalone master.

Everything that takes part is killed with SIGKILL at random moments: the driver, Java, Python
processes, executors, workers and the broker. On the standalone master some tasks are slow, and
Spark starts second attempts of them (speculation). In the end the committed output has each
input once, in order for each key.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness.exactly_once import Copies
from tests.harness.process import BrokerProcess
from tests.harness.standalone_spark import StandaloneSpark
from tests.harness.topic_stream.handle import TopicStream, speculative_tasks
from tests.harness.topic_stream.kills import TIMEOUT_S, StreamKills
from tests.harness.topic_stream.spec import StreamSpec

KILLS = int(os.environ.get("OTTLA_SPARK_KILLS", "0"))
SEED = int(os.environ.get("OTTLA_CLUSTER_SEED", "1"))
SOURCE, TARGET, GROUP = "source", "target", "stream"
PARTITIONS = 3
INPUT = 600
SLOW_S = 3.0
TWO_HOSTS = ("127.0.0.1", "127.0.0.2")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker") as started:
        create_topics(started.bootstrap_servers)
        yield started


def create_topics(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    topics = [NewTopic(name, PARTITIONS, 1) for name in (SOURCE, TARGET)]
    for created in admin.create_topics(topics).values():
        created.result(TIMEOUT_S)


def run(
    broker: BrokerProcess,
    directory: Path,
    standalone: StandaloneSpark | None = None,
    kills: Sequence[str] | None = None,
) -> None:
    """Kill one process after the other while the stream runs, and check everything in the end."""
    copies = Copies(
        broker.bootstrap_servers,
        source=SOURCE,
        target=TARGET,
        partitions=PARTITIONS,
        group=GROUP,
        at_once=INPUT,
    )
    copies.fill()
    events = directory / "events"
    events.mkdir()
    spec = StreamSpec(
        master="local[2]" if standalone is None else standalone.master,
        servers=broker.bootstrap_servers,
        source=SOURCE,
        target=TARGET,
        group=GROUP,
        checkpoint=str(directory / "checkpoint"),
        events=str(events),
        tasks=PARTITIONS,
        shuffled=SEED % 2 == 0,
        slow_s=0.0 if standalone is None else SLOW_S,
    )
    environment = None if standalone is None else standalone.environment()
    with ExitStack() as stack:
        stream = stack.enter_context(TopicStream(spec, directory / "stream.log", environment))
        killer = StreamKills(stream, copies, broker, random.Random(SEED), standalone)
        killer.go_on("start")
        for number, name in enumerate(killer.plan(KILLS) if kills is None else kills):
            print(f"{number}: {name}, {copies.count()} copies", flush=True)
            killer.kill(name)
        copies.await_all(TIMEOUT_S)
        stream.stop()
        stream.await_end_of_java()
    print(f"killed: {dict(killer.done)}", flush=True)
    speculative = speculative_tasks(events)
    print(f"{copies.check_keys()} copies, {speculative}", flush=True)
    if standalone is not None:
        assert speculative.started > 0, "Spark has started no second attempt of a slow task"


@pytest.mark.timeout(600)
def test_an_executor_is_killed_while_slow_tasks_have_second_attempts(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    with StandaloneSpark(tmp_path / "standalone", TWO_HOSTS) as standalone:
        run(broker, tmp_path, standalone, ["executor"])


@pytest.mark.skipif(not KILLS, reason="a long run: make spark-kills")
@pytest.mark.timeout(0)
def test_many_kills_in_local_mode(broker: BrokerProcess, tmp_path: Path) -> None:
    run(broker, tmp_path)


@pytest.mark.skipif(not KILLS, reason="a long run: make spark-kills")
@pytest.mark.timeout(0)
def test_many_kills_on_a_standalone_master(broker: BrokerProcess, tmp_path: Path) -> None:
    with StandaloneSpark(tmp_path / "standalone", TWO_HOSTS) as standalone:
        run(broker, tmp_path, standalone)
