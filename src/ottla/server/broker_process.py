"""All parts of one running broker, put together: listeners, files, node, loop."""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping

from ottla.broker.identity import IdentityError, check
from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.config.definition import ConfigError
from ottla.config.listeners import Endpoint
from ottla.metadata.serde import MetadataError
from ottla.model.errors import ApiError
from ottla.ports import Files, Ports
from ottla.server.background import BackgroundThread
from ottla.server.buffers import RequestBuffers
from ottla.server.errors import StartupError
from ottla.server.helper_processes import HelperProcess
from ottla.server.limits import ConnectionLimits
from ottla.server.listener import Listener
from ottla.server.os_files import OsFile, OsFiles, lock_directory
from ottla.server.reactor import Reactor
from ottla.server.system import SystemClock, SystemRandom

_MOST_OPEN_FILES = 16_384
_UNLIMITED_REQUEST_BYTES = 512 * 1024 * 1024  # where queued.max.request.bytes sets no bound


class Broker:
    """A broker of this process. `open`, then `serve` until `stop`, then `close`."""

    def __init__(
        self, properties: Mapping[str, str], *, memory: bool, report: Callable[[str], None]
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
        self._locks: list[OsFile] = []
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
        self._reactor.open()
        self._deliver_soon()

    def _take_directories(self, files: Files) -> None:
        """Make sure the directories are ours before anything is written to them."""
        config = self._config
        check(files, config.log_dirs, config.node_id, config.cluster_id)
        if not self._memory:
            for directory in config.log_dirs:
                files.make_dirs(directory)
                self._locks.append(lock_directory(directory))

    def _bind(self) -> None:
        config = self._config
        for endpoint in config.listeners:
            self._listeners.append(
                Listener(
                    endpoint, config.socket_send_buffer_bytes, config.socket_receive_buffer_bytes
                )
            )

    def _advertised(self) -> list[Endpoint]:
        """What clients are told: a port 0 becomes the one that was picked."""
        bound = {listener.name: listener.port for listener in self._listeners}
        return [
            endpoint if endpoint.port else endpoint._replace(port=bound[endpoint.listener_name])
            for endpoint in self._config.advertised_listeners
        ]

    def _ports(self) -> Ports:
        files: Files
        if self._memory:
            from ottla.memory_files import MemoryFiles

            files = MemoryFiles()
        else:
            files = OsFiles()
        return Ports(
            files,
            SystemClock(),
            SystemRandom(),
            self._background,
            self._report,
            helpers=self._helpers,
        )

    def _make_reactor(self, node: Node) -> Reactor:
        config = node.config
        limits = ConnectionLimits(
            config.max_connections,
            config.max_connections_per_ip,
            config.max_connections_per_ip_overrides,
            config.connections_max_idle_ms,
        )
        node.on_config.append(
            lambda changed: limits.set(
                changed.max_connections,
                changed.max_connections_per_ip,
                changed.max_connections_per_ip_overrides,
            )
        )
        queued = config.queued_max_request_bytes
        buffers = RequestBuffers(queued if queued > 0 else _UNLIMITED_REQUEST_BYTES)
        return Reactor(node, self._listeners, limits, buffers, config.socket_request_max_bytes)

    def _deliver_soon(self) -> None:
        if self._reactor is not None:
            self._reactor.call(self._deliver)

    def _deliver(self) -> None:
        self._background.deliver()
        self._helpers.deliver()

    def serve(self) -> None:
        """Run the loop until `stop`."""
        assert self._reactor is not None
        self._reactor.run()

    def stop(self) -> None:
        """End `serve`; safe from any thread and from signal handlers."""
        if self._reactor is not None:
            self._reactor.stop()

    def close(self) -> None:
        """Close connections, flush the logs and leave the mark of a clean shutdown."""
        self._helpers.stop()
        if self._reactor is not None:
            self._reactor.close()
        self._reactor = None
        self._background.stop()
        if self._node is not None:
            self._node.shutdown()
        self._release_directories()

    def _release_directories(self) -> None:
        for lock in self._locks:
            lock.close()
        self._locks.clear()

    def _give_up(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._release_directories()
        self._background.stop()


def _max_open_files(memory: bool) -> int:
    """Half of what this process may open: the other half is for connections."""
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
