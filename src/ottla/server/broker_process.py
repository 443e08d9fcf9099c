"""All parts of one running broker, put together: listeners, files, node, loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.broker.identity import IdentityError, check, new_cluster_id
from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.config.definition import ConfigError
from ottla.config.listeners import Endpoint, advertised_controllers
from ottla.log.damage import LogDirsFailed
from ottla.metadata.serde import MetadataError
from ottla.model.errors import ApiError
from ottla.network.buffers import RequestBuffers
from ottla.network.limits import ConnectionLimits
from ottla.network.peers import Peers
from ottla.network.stream import Connector
from ottla.ports import Files, ObjectStore, Ports
from ottla.server.background import BackgroundThread
from ottla.server.clock_and_random import SystemClock, SystemRandom
from ottla.server.errors import StartupError
from ottla.server.file_limit import file_limit
from ottla.server.helper_lanes import HelperLanes
from ottla.server.listener import Listener
from ottla.server.os_file import OsFile
from ottla.server.os_files import OsFiles, lock_directory
from ottla.server.reactor import Reactor

if TYPE_CHECKING:
    from ottla.raft.voters import Endpoint as QuorumEndpoint
    from ottla.server.metrics_endpoint import MetricsEndpoint
    from ottla.server.object_stores.tier_store import StoreThreads

_MOST_OPEN_FILES = 16_384
_UNLIMITED_REQUEST_BYTES = 512 * 1024 * 1024  # where queued.max.request.bytes sets no bound


class Broker:
    """A broker of this process. `open`, then `serve` until `stop`, then `close`."""

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        memory: bool,
        report: Callable[[str], None],
        metrics_port: int | None = None,
    ) -> None:
        try:
            self._config = BrokerConfig.from_properties(properties)
        except ConfigError as error:
            raise StartupError("\n".join(error.errors)) from error
        self._memory = memory
        self._report = report
        self._listeners: list[Listener] = []
        self._background = BackgroundThread(self._deliver_soon)
        self._helpers = HelperLanes(self._deliver_soon)
        self._store_threads: StoreThreads | None = None
        """The threads of the remote tier, if there is one."""
        self._reactor: Reactor | None = None
        self._node: Node | None = None
        self._peers: Peers | None = None
        self._locks: list[OsFile] = []
        self._metrics_port = metrics_port
        self._metrics: MetricsEndpoint | None = None
        self._is_leaving = False
        self.bootstrap_servers = ""
        self.ready_at = ""
        """Where it is reached, for people: a node of controllers only has no clients."""

    def open(self) -> None:
        """Bind, load the logs, listen. Raise StartupError, with nothing changed, if it cannot."""
        try:
            self._bind()
            advertised = self._advertised()
            ports = self._ports()
            self._take_directories(ports.files)
            self._node = Node(
                self._config,
                advertised,
                ports,
                controller_endpoints=self._controller_endpoints(),
                max_open_files=_max_open_files(self._memory),
            )
            self._node.start()
        except (IdentityError, MetadataError, ConfigError, ApiError, OSError) as error:
            self._give_up()
            raise StartupError(_explain(error)) from error
        except StartupError:
            self._give_up()
            raise
        self.bootstrap_servers = ",".join(_address(endpoint) for endpoint in advertised)
        self.ready_at = self.bootstrap_servers
        if not advertised:
            controllers = [f"{each.host}:{each.port}" for each in self._node.controller_endpoints]
            self.ready_at = f"{','.join(controllers)} as a controller"
        self._reactor = self._make_reactor(self._node)
        assert self._peers is not None
        self._peers.attach(self._reactor.engine)
        self._reactor.open()
        if self._metrics is not None:
            self._metrics.start()
        self._deliver_soon()
        self._report_ignored_settings()

    def _report_ignored_settings(self) -> None:
        names = self._config.ignored()
        if names:
            self._report(f"These settings have no effect in this broker: {', '.join(names)}")

    def _take_directories(self, files: Files) -> None:
        """Make sure the directories are ours before anything is written to them."""
        config = self._config
        given = config.node.cluster_id
        found = check(files, config.storage.log_dirs, config.node.node_id, given)
        if not (found or given or config.is_alone):
            raise IdentityError(
                "a new node of a cluster needs the cluster's id: set the same cluster.id for all"
                f" its nodes, for a new cluster such as cluster.id={new_cluster_id(SystemRandom())}"
            )
        if not self._memory:
            for directory in config.storage.log_dirs:
                files.make_dirs(directory)
                self._locks.append(lock_directory(directory))

    def _bind(self) -> None:
        config = self._config
        controllers = () if config.is_alone else config.network.controller_listener_names
        for endpoint in (*config.network.listeners, *controllers):
            self._listeners.append(
                Listener(
                    endpoint,
                    config.network.socket_send_buffer_bytes,
                    config.network.socket_receive_buffer_bytes,
                )
            )
        if self._metrics_port is not None:
            self._bind_metrics(self._metrics_port)

    def _advertised(self) -> list[Endpoint]:
        """Return what clients are told: a port 0 becomes the one that was picked."""
        bound = {listener.name: listener.port for listener in self._listeners}
        return [
            endpoint if endpoint.port else endpoint._replace(port=bound[endpoint.listener_name])
            for endpoint in self._config.network.advertised_listeners
        ]

    def _controller_endpoints(self) -> list[QuorumEndpoint]:
        """Return where other nodes reach this controller."""
        config = self._config
        if config.is_alone:
            return []
        from ottla.raft.voters import Endpoint as QuorumEndpoint

        bound = {listener.name: listener.port for listener in self._listeners}
        told = {each.listener_name: each for each in advertised_controllers(config.values)}
        own = [v for v in config.quorum.controller_quorum_voters if v.node_id == self.node_id]
        found = []
        for each in config.network.controller_listener_names:
            name, host, port = each.listener_name, each.host, bound[each.listener_name]
            if name in told:
                host, port = told[name].host, told[name].port or port
            elif own:
                host, port = own[0].host, own[0].port
            found.append(QuorumEndpoint(name, host, port))
        return found

    @property
    def node_id(self) -> int:
        return self._config.node.node_id

    def when_ready(
        self, ready: Callable[[], None], refused: Callable[[str], None], brokers: int = 1
    ) -> None:
        """Call `ready` once the broker takes requests, or `refused` with the reason why not.

        It is ready when it knows of this many `brokers` that take requests.
        """
        assert self._node is not None
        self._node.when_ready(ready, refused, brokers)

    def _ports(self) -> Ports:
        files: Files
        if self._memory:
            from ottla.memory_files import MemoryFiles

            files = MemoryFiles()
        else:
            files = OsFiles()
        random = SystemRandom()
        largest = self._config.network.socket_request_max_bytes
        self._peers = Peers(self._make_connector, random, largest)
        return Ports(
            files,
            SystemClock(),
            random,
            self._background,
            self._report,
            network=self._peers,
            helpers=self._helpers,
            object_store=self._open_tier(),
        )

    def _open_tier(self) -> ObjectStore | None:
        """Open the object store of the remote tier; None if this broker has none."""
        tiered = self._config.tiered
        is_broker = "broker" in self._config.node.process_roles
        if not tiered.remote_log_storage_system_enable or not is_broker:
            return None
        from ottla.server.object_stores.tier_store import StoreThreads, open_tier_store

        self._store_threads = StoreThreads(self._deliver_soon)
        return open_tier_store(tiered.remote_log_storage_url, self._store_threads)

    def _make_connector(self) -> Connector:
        from ottla.server.connector import SocketConnector  # a broker on its own does without

        return SocketConnector(self._call)

    def _make_reactor(self, node: Node) -> Reactor:
        config = node.config
        limits = ConnectionLimits(
            config.network.max_connections,
            config.network.max_connections_per_ip,
            config.network.max_connections_per_ip_overrides,
            config.network.connections_max_idle_ms,
        )
        node.on_config.append(
            lambda changed: limits.set(
                changed.network.max_connections,
                changed.network.max_connections_per_ip,
                changed.network.max_connections_per_ip_overrides,
            )
        )
        queued = config.network.queued_max_request_bytes
        buffers = RequestBuffers(queued if queued > 0 else _UNLIMITED_REQUEST_BYTES)
        return Reactor(
            node,
            self._listeners,
            limits,
            buffers,
            config.network.socket_request_max_bytes,
            most_unsent_ranges=file_limit() // 4,
        )

    def _bind_metrics(self, port: int) -> None:
        """Listen for requests for metrics, on the first listener's host."""
        from ottla.server.metrics_endpoint import MetricsEndpoint

        host = self._listeners[0].host or "0.0.0.0"
        self._metrics = MetricsEndpoint(host, port, self.read_metrics)

    def read_metrics(self, take: Callable[[bytes], None]) -> None:
        """Call `take` with the metrics as text, on the loop; safe from any thread."""
        from ottla.broker.metrics.prometheus_text import render, render_gauge

        def read() -> None:
            assert self._node is not None
            assert self._reactor is not None
            engine = self._reactor.engine
            take(
                render(self._node)
                + render_gauge("ottla_connections", "Open connections.", len(engine.channels))
                + render_gauge(
                    "ottla_slow_readers",
                    "Connections that do not take their replies.",
                    len(engine.slow_readers),
                )
                + render_gauge(
                    "ottla_unsent_bytes",
                    "Memory of replies to slow readers.",
                    engine.slow_readers.held_bytes,
                )
                + render_gauge(
                    "ottla_request_buffer_bytes",
                    "Memory of requests that have arrived in part.",
                    engine.buffers.reserved_bytes,
                )
            )

        self._call(read)

    @property
    def metrics_port(self) -> int | None:
        """The port of the metrics endpoint, None without one."""
        return None if self._metrics is None else self._metrics.port

    def _deliver_soon(self) -> None:
        self._call(self._deliver)

    def _deliver(self) -> list[Callable[..., object]]:
        takers = self._background.deliver() + self._helpers.deliver()
        return takers if self._store_threads is None else takers + self._store_threads.deliver()

    def _call(self, action: Callable[[], object]) -> None:
        """Run `action` on the loop soon, if there is one; safe from any thread."""
        reactor = self._reactor
        if reactor is not None:
            reactor.call(action)

    def serve(self) -> None:
        """Run the loop until `stop`, or until too many log directories are lost (LogDirsFailed).

        Any other exception that leaves the loop is a bug of the broker, in a handler or in a timer.
        Nobody knows what state it left, so the broker must end: call `abandon`, not `close`.
        """
        assert self._reactor is not None
        try:
            self._reactor.run()
        except LogDirsFailed as error:
            self._report(str(error))
            raise
        except Exception:
            from traceback import format_exc

            self._report(
                "the broker ends after an unexpected error, because its state is unknown; "
                "it recovers its logs at the next start\n" + format_exc()
            )
            raise

    def watch_collections(self) -> None:
        """Keep Python's garbage collection from holding the loop; for a process of its own."""
        from ottla.server.garbage_collection import GarbageCollection

        assert self._node is not None
        GarbageCollection(self._node)

    def stop(self, *, hand_over: bool = True) -> None:
        """End `serve`, after other nodes of the cluster have taken over.

        Without `hand_over`, or called twice, it ends at once: for a cluster that stops as a
        whole. Safe from any thread and from signal handlers.
        """
        reactor, node = self._reactor, self._node
        if reactor is None or node is None:
            return
        if self._config.is_alone or self._is_leaving or not hand_over:
            reactor.stop()
        else:
            self._is_leaving = True
            reactor.call(lambda: node.leave(reactor.stop))

    def close(self) -> None:
        """Close connections, flush the logs and leave the mark of a clean shutdown."""
        self._stop_serving()
        if self._node is not None:
            self._node.store.stop_flushes()
        self._background.stop()
        if self._node is not None:
            self._node.shutdown()
        self._release_directories()

    def abandon(self) -> None:
        """Close connections and let go of the directories, and write nothing."""
        self._stop_serving()
        self._release_directories()

    def vanish(self) -> None:
        """Let go of everything as `abandon` does, and leave no thread: this process goes on."""
        self._stop_serving()
        if self._node is not None:
            self._node.store.stop_flushes()
        self._background.end()
        self._release_directories()

    def _stop_serving(self) -> None:
        """Close all connections, and end helper processes and the store's threads."""
        self._close_metrics()
        self._helpers.stop()
        self._stop_store_threads()
        self._close_reactor()

    def hold(self, until: Callable[[], object]) -> None:
        """Let the loop stand still until a function returns; safe from any thread."""
        self._call(until)

    def _close_metrics(self) -> None:
        if self._metrics is not None:
            self._metrics.close()

    def _stop_store_threads(self) -> None:
        if self._store_threads is not None:
            self._store_threads.stop()

    def _close_reactor(self) -> None:
        reactor, self._reactor = self._reactor, None
        if reactor is not None:
            reactor.close()

    def _release_directories(self) -> None:
        for lock in self._locks:
            lock.close()
        self._locks.clear()

    def _give_up(self) -> None:
        self._close_metrics()
        for listener in self._listeners:
            listener.close()
        self._release_directories()
        self._stop_store_threads()
        self._background.stop()


def _max_open_files(memory: bool) -> int:
    """Return half of what this process may open. The rest is for connections and slow readers."""
    if memory:
        return _MOST_OPEN_FILES
    return max(16, min(_MOST_OPEN_FILES, file_limit() // 2))


def _explain(error: Exception) -> str:
    if isinstance(error, ApiError):
        return str(error)
    if isinstance(error, ConfigError):
        return "\n".join(error.errors)
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error.args[-1]) if error.args else str(error)


def _address(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{host}:{endpoint.port}"
