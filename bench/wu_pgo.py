"""Measures what a replicated message costs each node: `python bench/wake_ups.py`.

Three nodes in one process, with real files and real sockets, are woken up by hand in the order of
a Produce with acks=all that a consumer waits for. Nothing else runs meanwhile and nobody is waited
for. The times are those of the brokers' own work, without `recv` and `send`.

    PYTHONPATH=build/compiled python bench/wake_ups.py    # the compiled modules
    PYTHONPATH=src python bench/wake_ups.py --cold        # with cold caches before each wake-up
    PYTHONPATH=src python bench/wake_ups.py --calls       # the functions of each wake-up

`--cold` copies some megabytes before each wake-up, as other processes on the same core would.
With compiled modules, `--calls` shows what is still interpreted.
"""

from __future__ import annotations

import argparse
import gc
import os
import select
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from struct import Struct
from typing import Any

from harness.broker import free_ports
from harness.cluster import CLUSTER_PROPERTIES, LOOPBACK, NODES
from ottla.broker.identity import new_cluster_id
from ottla.records.checksum import crc32c
from ottla.server.broker_process import Broker
from ottla.server.clock_and_random import SystemRandom
from ottla.wire.codec import encoder
from ottla.wire.header import request_header
from ottla.wire.messages import fetch, produce

TOPIC = "wake-ups"
VALUE_BYTES = 100
WARM_ROUNDS = 300
COLD_BYTES = 3 << 20
STEPS = (
    "leader: the message",
    "follower",
    "leader: the first fetch",
    "leader: the second fetch",
    "leader: the consumer's next fetch",
)

_now = time.perf_counter_ns
_batch_head = Struct(">qiiBI")
_batch_body = Struct(">hiqqqhii")


class Stamps:
    """Counts the time in system calls of one wake-up, and notes when it has sent."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin with another wake-up."""
        self.calls_ns = 0
        self.received = 0
        self.sent_ns: list[int] = []

    def send(self, call: Callable[..., int]) -> Callable[..., int]:
        """Return a function that does the same as a stream's `send`, and notes the time."""

        def stamped(data: bytes) -> int:
            began = _now()
            count = call(data)
            ended = _now()
            self.sent_ns.append(began - self.calls_ns)
            self.calls_ns += ended - began
            return count

        return stamped

    def receive(self, call: Callable[..., int]) -> Callable[..., int]:
        """Return a function that does the same as a stream's `recv_into`, and counts the time."""

        def stamped(view: memoryview) -> int:
            began = _now()
            count = call(view)
            self.calls_ns += _now() - began
            self.received += 1
            return count

        return stamped


class Node:
    """A broker whose event loop is driven by hand."""

    def __init__(self, properties: dict[str, str]) -> None:
        self.broker = Broker(properties, memory=False, report=_report)
        self.broker.open()
        reactor: Any = self.broker._reactor
        self.reactor, self.engine = reactor, reactor.engine
        self.poller, self.node = reactor._poller, reactor._node
        self.engine.watch_idle()
        self.is_ready = False
        self.broker.when_ready(self._ready, _report, NODES)

    def _ready(self) -> None:
        self.is_ready = True

    def wake(self) -> bool:
        """Take one turn of the loop, as `Reactor.run` does; return whether there were events."""
        engine = self.engine
        readable, writable = self.poller.readable, self.poller.writable
        events = self.poller.poll(0)
        self.node.advance()
        for fd, event in events:
            channel = engine.channels.get(fd)
            if channel is None:
                self.reactor._other(fd)
            elif event & writable:
                engine.send(channel)
            elif event & readable:
                engine.receive(channel)
            else:
                engine.close(channel)
        if engine.to_resume:
            engine.resume()
        engine.settle()
        if self.reactor._called:
            self.reactor._run_calls()
            engine.settle()
        return bool(events)

    def stamp(self, stamps: Stamps) -> None:
        """Have the system calls of all connections counted."""
        for channel in self.engine.channels.values():
            channel._send = stamps.send(channel._send)
            channel.recv_into = stamps.receive(channel.recv_into)


def _report(text: str) -> None:
    print(text, file=sys.stderr)


class Client:
    """A plain connection that sends requests and receives responses."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((LOOPBACK, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(5)

    def send(self, api_key: int, version: int, message: Any) -> None:
        """Send a request."""
        body = encoder(type(message), version)(message)
        frame = request_header(api_key, version, 1, "rdkafka") + body
        self._socket.sendall(len(frame).to_bytes(4, "big") + frame)

    def has_arrived(self) -> bool:
        """Return True if something can be received."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def receive(self) -> int:
        """Receive a response, and return its size."""
        data = self._socket.recv(65536)
        assert int.from_bytes(data[:4], "big") == len(data) - 4
        return len(data)


def batch_of(value: bytes) -> bytes:
    """Return a batch of one record, as librdkafka makes it."""
    record = b"\0\0\0\x01" + _varint(len(value)) + value + b"\0"
    now_ms = int(time.time() * 1000)
    body = _batch_body.pack(0, 0, now_ms, now_ms, -1, -1, -1, 1) + _varint(len(record)) + record
    return _batch_head.pack(0, len(body) + 9, 0, 2, crc32c(body)) + body


def _varint(value: int) -> bytes:
    value <<= 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


class Cluster:
    """Three nodes, and a topic that the first one leads."""

    def __init__(self, directory: Path) -> None:
        ports = free_ports(2 * NODES)
        voters = (f"{n}@{LOOPBACK}:{port}" for n, port in enumerate(ports[NODES:], 1))
        shared = {
            **CLUSTER_PROPERTIES,
            "controller.quorum.voters": ",".join(voters),
            "cluster.id": new_cluster_id(SystemRandom()),
            "auto.create.topics.enable": "false",
        }
        self.nodes = []
        for n in range(1, NODES + 1):
            listeners = (
                f"PLAINTEXT://{LOOPBACK}:{ports[n - 1]},"
                f"CONTROLLER://{LOOPBACK}:{ports[NODES + n - 1]}"
            )
            own = {
                "node.id": str(n),
                "listeners": listeners,
                "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{ports[n - 1]}",
                "log.dirs": str(directory / f"node-{n}"),
            }
            self.nodes.append(Node({**shared, **own}))
        self.ports = ports
        self.drive(lambda: all(node.is_ready for node in self.nodes))
        self._create_topic(ports[0])
        leader_id = self._leader_id()
        self.leader = self.nodes[leader_id - 1]
        self.followers = [node for node in self.nodes if node is not self.leader]
        self.port = ports[leader_id - 1]

    def drive(self, is_done: Callable[[], bool]) -> None:
        """Wake up all nodes in turn until something has happened."""
        until = time.monotonic() + 60
        while not is_done():
            assert time.monotonic() < until, "the cluster does not get there"
            if not self._wake_all():
                time.sleep(0.0005)

    def _wake_all(self) -> int:
        """Wake up each node once; return how many had events."""
        return sum(node.wake() for node in self.nodes)

    def settle(self) -> None:
        """Wake up all nodes until nothing happens."""
        while self._wake_all():
            pass

    def _create_topic(self, port: int) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": f"{LOOPBACK}:{port}"})
        topic = NewTopic(TOPIC, 1, replication_factor=NODES)

        def create() -> None:
            admin.create_topics([topic])[TOPIC].result(30)

        thread = threading.Thread(target=create)
        thread.start()
        self.drive(lambda: not thread.is_alive())
        self.drive(lambda: self._leader_id() > 0)
        began = time.monotonic()
        self.drive(lambda: time.monotonic() > began + 1)

    def _leader_id(self) -> int:
        topic = self.nodes[0].node.image.topics.get(TOPIC)
        return -1 if topic is None else int(topic.partitions[0].leader)

    @property
    def topic_id(self) -> bytes:
        """The id of the topic."""
        return bytes(self.nodes[0].node.image.topics[TOPIC].topic_id)


class Loop:
    """Sends messages one by one and measures each wake-up."""

    def __init__(self, cluster: Cluster, options: argparse.Namespace) -> None:
        self._cluster = cluster
        self._producer, self._consumer = Client(cluster.port), Client(cluster.port)
        self._stamps = Stamps()
        self._offset = 0
        self._is_clean = True
        self._is_cold = options.cold
        self._copied = bytearray(COLD_BYTES)
        self._value = b"v" * VALUE_BYTES
        self.profile: Callable[[str, Callable[[], object]], None] | None = None
        cluster.settle()
        for node in cluster.nodes:
            node.stamp(self._stamps)
        self._fetch()

    def _fetch(self) -> None:
        partition = fetch.FetchPartition(
            partition=0, fetch_offset=self._offset, partition_max_bytes=1 << 20,
            current_leader_epoch=-1, last_fetched_epoch=-1, log_start_offset=-1,
        )  # fmt: skip
        topic = fetch.FetchTopic(topic_id=self._cluster.topic_id, partitions=[partition])
        request = fetch.FetchRequest(
            max_wait=500, min_bytes=1, max_bytes=50 << 20, topics=[topic],
            session_id=0, session_epoch=-1,
        )  # fmt: skip
        self._consumer.send(fetch.FetchRequest.API_KEY, 16, request)

    def _produce(self) -> None:
        data = produce.PartitionProduceData(index=0, records=batch_of(self._value))
        topic = produce.TopicProduceData(name=TOPIC, partition_data=[data])
        request = produce.ProduceRequest(acks=-1, timeout=30000, topic_data=[topic])
        self._producer.send(produce.ProduceRequest.API_KEY, 10, request)

    def _step(self, name: str, node: Node) -> tuple[str, float, float]:
        """Wake a node up; return the time until it has sent, and in all, without system calls."""
        if self._is_cold:
            bytes(self._copied)
        stamps = self._stamps
        stamps.clear()
        if self.profile is not None:
            self.profile(name, node.wake)
            return name, 0.0, 0.0
        self._await(node)
        began = _now()
        node.wake()
        ended = _now()
        self._is_clean = self._is_clean and stamps.received == 1
        sent = (stamps.sent_ns[-1] if stamps.sent_ns else began) - began
        return name, sent / 1000, (ended - began - stamps.calls_ns) / 1000

    def _await(self, node: Node) -> None:
        """Wait until something has arrived at a node."""
        until = time.monotonic() + 1
        while not node.poller.has_events() and time.monotonic() < until:
            pass

    def message(self) -> list[tuple[str, float, float]]:
        """Send a message and take it to the consumer; return the times of each wake-up.

        Return nothing if a node was woken up by something else meanwhile.
        """
        leader, (first, second) = self._cluster.leader, self._cluster.followers
        self._cluster.settle()
        self._is_clean = True
        self._produce()
        steps = [
            self._step(STEPS[0], leader),
            self._step(STEPS[1], first),
            self._step(STEPS[2], leader),
            self._step(STEPS[1], second),
            self._step(STEPS[3], leader),
        ]
        for client in (self._consumer, self._producer):
            self._cluster.drive(client.has_arrived)
            client.receive()
        self._offset += 1
        self._fetch()
        steps.append(self._step(STEPS[4], leader))
        return steps if self._is_clean else []


def measure(loop: Loop, rounds: int) -> None:
    """Print the medians of the wake-ups, and the least of them."""
    found: dict[str, list[tuple[float, float]]] = {step: [] for step in STEPS}
    for number in range(WARM_ROUNDS + rounds):
        for name, sent_us, all_us in loop.message():
            if number >= WARM_ROUNDS:
                found[name].append((sent_us, all_us))
    way = []
    for step, times in found.items():
        sent, whole = median(each[0] for each in times), median(each[1] for each in times)
        fast = sorted(each[1] for each in times)[len(times) // 10]
        print(f"{step:36} {sent:6.1f} us until sent, {whole:6.1f} in all, {fast:.1f} in fast ones")
        way.append(sent)
    print(f"{'the way of a message':36} {way[0] + way[1] + way[3]:6.1f} us")


def count_calls(loop: Loop) -> None:
    """Print the functions that each wake-up calls, Python's and C's, with their number."""
    calls: dict[str, Counter[str]] = {step: Counter() for step in STEPS}

    def profiled(name: str, wake: Callable[[], object]) -> None:
        def note(frame: Any, event: str, argument: Any) -> None:
            if event == "call":
                code = frame.f_code
                calls[name][f"{Path(code.co_filename).name}:{code.co_qualname}"] += 1
            elif event == "c_call":
                calls[name][f"C {argument.__qualname__}"] += 1

        sys.setprofile(note)
        try:
            wake()
        finally:
            sys.setprofile(None)

    for _ in range(WARM_ROUNDS):
        loop.message()
    loop.profile = profiled
    rounds = 10
    for _ in range(rounds):
        loop.message()
    for step, counter in calls.items():
        print(f"\n{step}: {sum(counter.values()) // rounds} calls")
        for function, count in counter.most_common():
            print(f"  {count / rounds:6.1f} {function}")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--cold", action="store_true", help="with cold caches")
    parser.add_argument("--calls", action="store_true", help="list the functions")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-wake-ups-") as directory:
        loop = Loop(Cluster(Path(directory)), options)
        gc.collect()
        gc.freeze()
        if options.calls:
            count_calls(loop)
        else:
            measure(loop, options.rounds)
        sys.stdout.flush()
        # The nodes are left as they are: nothing of them is needed any more.
    sys.exit(0)


if __name__ == "__main__":
    main()
