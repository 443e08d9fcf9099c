"""An in-process cluster for tests: the broker that serves production, on a thread of the caller.

Invariants: between `start` and `stop` it answers at `bootstrap_servers`; the port it picked
stays the same over `restart`; a directory made by the cluster is removed by `close`, one that
was given is never removed; after `close` nothing of it is left running.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from os import PathLike, fspath
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from ottla.server.runner import BrokerThread

_HOST = "127.0.0.1"


class Cluster:
    """One broker on a free port of 127.0.0.1, with a temporary directory unless told otherwise.

    `properties` are Kafka's broker settings and win over what the cluster sets itself.
    `memory` keeps everything in memory, which a restart then forgets. `data_dir` keeps the data
    where it is told and leaves it there.
    """

    def __init__(
        self,
        *,
        memory: bool = False,
        data_dir: str | PathLike[str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        if memory and data_dir is not None:
            raise ValueError("a cluster in memory has no data_dir: give one or the other")
        self._memory = memory
        self._given_directory = None if data_dir is None else fspath(data_dir)
        self._properties = dict(properties or {})
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._broker: BrokerThread | None = None
        self._port = 0

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for any Kafka client; RuntimeError unless the cluster runs."""
        if self._broker is None:
            raise RuntimeError("the cluster is not running: call start() or use it in a with block")
        return self._broker.bootstrap_servers

    @property
    def running(self) -> bool:
        """Whether the broker has been started and not stopped."""
        return self._broker is not None

    def start(self) -> None:
        """Start the broker and return once it answers; StartupError says why it cannot."""
        from ottla.server.runner import BrokerThread

        if self._broker is not None:
            raise RuntimeError("the cluster is already running")
        fresh = self._temporary is None
        try:
            broker = BrokerThread(self._settings(), memory=self._memory)
            broker.start()
        except BaseException:
            if fresh:
                self._remove_temporary()
            raise
        self._broker = broker
        if not {"listeners", "advertised.listeners"} & self._properties.keys():
            self._port = int(broker.bootstrap_servers.rpartition(":")[2])

    def stop(self) -> None:
        """Stop the broker cleanly, keeping its data; fine if it does not run."""
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.stop()

    def restart(self) -> None:
        """Stop cleanly and start again on the same port with the same data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop, and remove the directory if the cluster made it."""
        try:
            self.stop()
        finally:
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

    def _settings(self) -> dict[str, str]:
        settings = {"listeners": f"PLAINTEXT://{_HOST}:{self._port}"}
        if not self._memory:
            settings["log.dirs"] = self._directory()
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
