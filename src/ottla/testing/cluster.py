"""A cluster for tests: the broker that serves production, one or several of it.

Brokers run on threads of the caller, or as processes. Invariants: between `start` and `stop` they
answer at `bootstrap_servers`; their ports stay the same over `restart`; a directory made by the
cluster is removed by `close`, one that was given is never removed; after `close` nothing of it
is left running.

Two settings differ from a production broker: ports are free ones, and a classic group starts
with its first member instead of waiting three seconds for others. Several brokers have the
settings of `ottla up --brokers`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fspath
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from ottla.client.cluster import Client
    from ottla.testing.broker_process import ProcessBroker
    from ottla.testing.broker_thread import ThreadBroker
    from ottla.testing.cluster_network import ClusterNetwork

_HOST = "127.0.0.1"
PropertyValue = str | int | float | Iterable[str]
"""Text, a number, a bool, or several texts that are joined with commas."""


class Cluster:
    """Brokers on free ports of 127.0.0.1, with a temporary directory unless told otherwise.

    `brokers` is their number; their ids are 1, 2, 3 and so on. `processes` runs each in a process
    of its own, instead of on a thread. `properties` are Kafka's broker settings and win over what
    the cluster sets itself. `memory` keeps everything in memory, which a restart then forgets.
    `data_dir` is where the data goes and stays. `racks` has the rack
    of each broker. `proxied` lets brokers reach each other through small proxies, which
    `partition_network` needs; without them they are as fast as in production. In a coroutine, use
    it with `async with`: the event loop goes on while brokers start and stop.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        processes: bool = False,
        memory: bool = False,
        data_dir: str | PathLike[str] | None = None,
        properties: Mapping[str, PropertyValue] | None = None,
        racks: Sequence[str] = (),
        proxied: bool = True,
    ) -> None:
        if memory and data_dir is not None:
            raise ValueError("a cluster in memory has no data_dir: give one or the other")
        if brokers < 1:
            raise ValueError(f"a cluster has at least one broker, not {brokers}")
        if racks and len(racks) != brokers:
            raise ValueError(f"{brokers} brokers need as many racks, not {len(racks)}")
        self._racks = racks
        self._proxied = proxied
        self._count = brokers
        self._processes = processes
        self._memory = memory
        self._given_directory = None if data_dir is None else fspath(data_dir)
        self._properties = {name: _text(name, value) for name, value in (properties or {}).items()}
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._network: ClusterNetwork | None = None
        self._brokers: dict[int, ThreadBroker | ProcessBroker] = {}
        self._port = 0

    # -- start and stop ------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of all brokers for any Kafka client; RuntimeError unless one runs."""
        running = [broker for broker in self._brokers.values() if broker.running]
        if not running:
            raise RuntimeError("the cluster is not running: call start() or use it in a with block")
        return self._network.bootstrap_servers if self._network else running[0].bootstrap_servers

    @property
    def running(self) -> bool:
        """Whether a broker has been started and not stopped."""
        return any(broker.running for broker in self._brokers.values())

    def start(self, n: int | None = None) -> None:
        """Start broker n, or all, and return once they answer; StartupError says why not."""
        if n is not None:
            if self._broker(n).running:
                raise RuntimeError(f"broker {n} is already running")
            self._start([self._broker(n)])
            return
        if self.running:
            raise RuntimeError("the cluster is already running")
        fresh = self._temporary is None
        try:
            self._make_brokers()
            self._start(list(self._brokers.values()))
        except BaseException:
            if fresh:
                self._remove_temporary()
            raise
        if not {"listeners", "advertised.listeners"} & self._properties.keys():
            self._port = int(self._brokers[1].bootstrap_servers.rpartition(":")[2])

    def _start(self, brokers: list[ThreadBroker | ProcessBroker]) -> None:
        try:
            for broker in brokers:
                broker.begin(len(brokers))
            for broker in brokers:
                broker.wait_until_ready()
        except BaseException:
            for broker in brokers:
                broker.stop(hand_over=False)
            raise

    def stop(self, n: int | None = None) -> None:
        """Stop broker n, or all, cleanly, keeping the data; fine if it does not run.

        If a single broker stops, the others take over its partitions first.
        """
        if n is not None:
            self._broker(n).stop(hand_over=True)
            return
        for broker in self._brokers.values():
            broker.stop(hand_over=False)

    def restart(self, n: int | None = None) -> None:
        """Stop broker n, or all, cleanly and start again on the same port with the same data.

        A broker that was stopped or killed is started.
        """
        self.stop(n)
        self.start(n)

    # -- faults --------------------------------------------------------------------------

    def kill(self, n: int = 1) -> None:
        """End broker n as a crash would: its process with SIGKILL, or its thread at once."""
        self._broker(n).kill()

    def pause(self, n: int = 1) -> None:
        """Let broker n stand still, a process with SIGSTOP: it keeps its connections, silently."""
        self._broker(n).pause()

    def resume(self, n: int = 1) -> None:
        """Let a paused broker go on."""
        self._broker(n).resume()

    def partition_network(self, *nodes: int) -> None:
        """Cut these brokers off the others, in both directions; clients still reach all.

        It replaces an earlier partition, and lasts until `heal`.
        """
        for n in nodes:
            self._broker(n)
        if self._network is None or self._network.proxies is None:
            raise RuntimeError(
                "partition_network() needs several brokers, and proxies between them"
            )
        self._network.proxies.partition(frozenset(nodes))

    def heal(self) -> None:
        """End the partition of the network."""
        if self._network is not None and self._network.proxies is not None:
            self._network.proxies.heal()

    # -- what is where -------------------------------------------------------------------

    def metrics(self, n: int = 1) -> str:
        """Return the metrics of broker n in Prometheus' text format."""
        broker = self._brokers.get(n)
        if broker is None or not broker.running:
            raise RuntimeError("the cluster is not running: call start() or use it in a with block")
        return broker.metrics()

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the id of the broker that leads a partition, -1 if there is none."""
        with self._client() as client:
            (found,) = client.metadata([topic], client.deadline("asking for a leader"))
            return next(p.leader_id for p in found.partitions if p.partition_index == partition)

    def controller(self) -> int:
        """Return the id of the active controller."""
        from ottla.testing.active_controller import active_controller

        if self._network is None:
            return 1
        running = [n for n, broker in self._brokers.items() if broker.running]
        addresses = (self._network.controller_address(n) for n in running)
        return active_controller([address for address in addresses if address is not None])

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication_factor: int | None = None,
        configs: Mapping[str, PropertyValue] | None = None,
    ) -> str:
        """Create a topic, wait until it has leaders, and return its name.

        Without `partitions` or `replication_factor`, or with -1, those of the brokers' settings
        are taken. Raise TypeError or ValueError if they are not whole numbers from 1 on.
        Raise `ottla.client.errors.Refused` if the broker refuses, for instance because the topic
        exists.
        """
        from ottla.client.topics.topics import BROKER_DEFAULT, create_topics

        for what, count in (("partitions", partitions), ("replication_factor", replication_factor)):
            if count is not None:
                _check_count(what, count)
        overrides = {key: _text(key, value) for key, value in (configs or {}).items()}
        with self._client() as client:
            (outcome,) = create_topics(
                client,
                [name],
                partitions=partitions or BROKER_DEFAULT,
                replication_factor=replication_factor or BROKER_DEFAULT,
                configs=overrides,
            )
        if outcome.error is not None:
            raise outcome.error
        return name

    # -- the end -------------------------------------------------------------------------

    def close(self) -> None:
        """Stop, and remove the directory if the cluster made it."""
        try:
            self.stop()
        finally:
            network, self._network = self._network, None
            self._brokers.clear()
            if network is not None:
                network.close()
            self._remove_temporary()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        import asyncio  # here, as pytest imports this module at every start

        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        import asyncio

        await asyncio.to_thread(self.close)

    # -- how it is made ------------------------------------------------------------------

    def _client(self) -> Client:
        from ottla.client.address import parse_addresses
        from ottla.client.cluster import Client

        return Client(parse_addresses(self.bootstrap_servers))

    def _broker(self, n: int) -> ThreadBroker | ProcessBroker:
        broker = self._brokers.get(n)
        if broker is None:
            raise RuntimeError(f"there is no broker {n}: the cluster has {self._count}")
        return broker

    def _make_brokers(self) -> None:
        if self._brokers:
            return
        if self._count > 1:
            from ottla.server.local_cluster import PER_BROKER
            from ottla.testing.cluster_network import ClusterNetwork

            fixed = sorted(PER_BROKER & self._properties.keys())
            if fixed:
                raise ValueError(f"{fixed[0]} differs from broker to broker: it cannot be set")
            self._network = ClusterNetwork(self._count, proxied=self._proxied)
        for n in range(1, self._count + 1):
            self._brokers[n] = self._new_broker(n)

    def _new_broker(self, n: int) -> ThreadBroker | ProcessBroker:
        def settings() -> dict[str, str]:
            return self._settings(n)

        if self._processes:
            from ottla.testing.broker_process import ProcessBroker

            return ProcessBroker(n, settings, self._memory)
        from ottla.testing.broker_thread import ThreadBroker

        return ThreadBroker(n, settings, self._memory)

    def _settings(self, n: int) -> dict[str, str]:
        directory = None if self._memory else self._directory()
        settings = {"group.initial.rebalance.delay.ms": "0"}
        if self._network is not None:
            own = None if directory is None else f"{directory}/broker-{n}"
            settings |= self._network.settings_of(n, own)
        else:
            settings["listeners"] = f"PLAINTEXT://{_HOST}:{self._port}"
            if directory is not None:
                settings["log.dirs"] = directory
        if self._racks:
            settings["broker.rack"] = self._racks[n - 1]
        return settings | self._properties

    def _directory(self) -> str:
        if self._given_directory is not None:
            return self._given_directory
        if self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="ottla-")
        return self._temporary.name

    def _remove_temporary(self) -> None:
        temporary, self._temporary = self._temporary, None
        if temporary is not None:
            temporary.cleanup()


def _check_count(what: str, count: int) -> None:
    """Raise TypeError or ValueError unless this is -1, or a whole number from 1 on."""
    if not isinstance(count, int) or isinstance(count, bool):
        raise TypeError(f"{what} must be a whole number, not {count!r}")
    if count < 1 and count != -1:
        raise ValueError(f"{what} must be at least 1, or -1 for the default, not {count}")


def _text(name: str, value: PropertyValue) -> str:
    """Return a value as Kafka's properties files write it. Raise TypeError for any other type."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray):
        return ",".join(value)
    raise TypeError(f"{name} must be text, a number, a bool or a list of texts, not {value!r}")
