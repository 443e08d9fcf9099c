"""All parts of one running broker, put together: listeners, files, node, loop."""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.broker.identity import IdentityError, check
from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.config.definition import ConfigError
from ottla.config.listeners import Endpoint
from ottla.metadata.serde import MetadataError
from ottla.model.errors import ApiError
from ottla.network.buffers import RequestBuffers
from ottla.network.limits import ConnectionLimits
from ottla.network.peers import Peers
from ottla.network.stream import Connector
from ottla.ports import Files, Ports
from ottla.server.background import BackgroundThread
from ottla.server.errors import StartupError
from ottla.server.helper_processes import HelperProcess
from ottla.server.listener import Listener
from ottla.server.os_files import OsFile, OsFiles, lock_directory
from ottla.server.reactor import Reactor
from ottla.server.system import SystemClock, SystemRandom

if TYPE_CHECKING:
    from ottla.server.metrics_endpoint import MetricsEndpoint

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
        self._helpers = HelperProcess(self._deliver_soon)
        self._reactor: Reactor | None = None
        self._node: Node | None = None
        self._peers: Peers | None = None
        self._locks: list[OsFile] = []
        self._metrics_port = metrics_port
        self._metrics: MetricsEndpoint | None = None
        self.bootstrap_servers = ""

    def open(self) -> None:
        """Bind, load the logs, listen. StartupError, with nothing touched, when it cannot."""
        try:
            self._bind()
            advertised = self._advertised()
            ports = self._ports()
            self._take_directories(ports.files)
            self._node = Node(
                self._config, advertised, ports, max_open_files=_max_open_files(self._memory)
            )
            self._node.start()
        except (IdentityError, MetadataError, ConfigError, ApiError, OSError) as error:
            self._give_up()
            raise StartupError(_explain(error)) from error
        except StartupError:
            self._give_up()
            raise
        self.bootstrap_servers = ",".join(_address(endpoint) for endpoint in advertised)
        self._reactor = self._make_reactor(self._node)
        assert self._peers is not None
        self._peers.attach(self._reactor.engine)
        self._reactor.open()
        if self._metrics is not None:
            self._metrics.start()
        self._deliver_soon()

    def _take_directories(self, files: Files) -> None:
        """Make sure the directories are ours before anything is written to them."""
        config = self._config
        check(files, config.storage.log_dirs, config.node.node_id, config.node.cluster_id)
        if not self._memory:
            for directory in config.storage.log_dirs:
                files.make_dirs(directory)
                self._locks.append(lock_directory(directory))

    def _bind(self) -> None:
        config = self._config
        for endpoint in config.network.listeners:
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
        )

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
            node, self._listeners, limits, buffers, config.network.socket_request_max_bytes
        )

    def _bind_metrics(self, port: int) -> None:
        """Listen for requests for metrics, on the first listener's host."""
        from ottla.server.metrics_endpoint import MetricsEndpoint

        host = self._listeners[0].host or "0.0.0.0"
        self._metrics = MetricsEndpoint(host, port, self._read_metrics)

    def _read_metrics(self, take: Callable[[bytes], None]) -> None:
        """Call `take` with the metrics as text, on the loop."""
        from ottla.broker.prometheus_text import render

        def read() -> None:
            assert self._node is not None
            connections = 0 if self._reactor is None else len(self._reactor.engine.channels)
            take(
                render(self._node)
                + b"# HELP ottla_connections Open connections.\n# TYPE ottla_connections gauge\n"
                + b"ottla_connections %d\n" % connections
            )

        self._call(read)

    @property
    def metrics_port(self) -> int | None:
        """The port of the metrics endpoint, None without one."""
        return None if self._metrics is None else self._metrics.port

    def _deliver_soon(self) -> None:
        self._call(self._deliver)

    def _deliver(self) -> None:
        self._background.deliver()
        self._helpers.deliver()

    def _call(self, action: Callable[[], None]) -> None:
        """Run `action` on the loop soon, if there is one; safe from any thread."""
        reactor = self._reactor
        if reactor is not None:
            reactor.call(action)

    def serve(self) -> None:
        """Run the loop until `stop`.

        An exception that leaves the loop is a bug of the broker, in a handler or in a timer.
        Nobody knows what state it left, so the broker must end: call `abandon`, not `close`.
        """
        assert self._reactor is not None
        try:
            self._reactor.run()
        except Exception:
            from traceback import format_exc

            self._report(
                "the broker ends after an unexpected error, because its state is unknown; "
                "it recovers its logs at the next start\n" + format_exc()
            )
            raise

    def stop(self) -> None:
        """End `serve`; safe from any thread and from signal handlers."""
        if self._reactor is not None:
            self._reactor.stop()

    def close(self) -> None:
        """Close connections, flush the logs and leave the mark of a clean shutdown."""
        self._close_metrics()
        self._helpers.stop()
        self._close_reactor()
        self._background.stop()
        if self._node is not None:
            self._node.shutdown()
        self._release_directories()

    def abandon(self) -> None:
        """Close connections and let go of the directories, and write nothing."""
        self._close_metrics()
        self._helpers.stop()
        self._close_reactor()
        self._release_directories()

    def _close_metrics(self) -> None:
        if self._metrics is not None:
            self._metrics.close()

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
        self._background.stop()


def _max_open_files(memory: bool) -> int:
    """Return half of what this process may open: the other half is for connections."""
    if memory:
        return _MOST_OPEN_FILES
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, min(_MOST_OPEN_FILES, soft // 2))


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
