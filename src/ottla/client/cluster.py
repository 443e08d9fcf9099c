"""A client of a cluster: finds the brokers, routes requests and retries within limits.

The first connection fails fast: if no bootstrap server answers, the user learns it at once.
Later, if a broker is away, the client waits for it with increasing pauses, up to the
operation's deadline and MAX_ATTEMPTS.

If a connection breaks, the broker may have executed the request. `retry` repeats a request
only if the caller says that it is harmless to execute it twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TypeVar

from ottla.client.address import Address
from ottla.client.connection import Connection
from ottla.client.deadline import Deadline
from ottla.client.errors import (
    NOT_TRIED,
    ClientError,
    ConnectionLost,
    Refused,
    TimedOut,
    Unreachable,
    check,
)
from ottla.client.security.settings import PLAINTEXT, Security
from ottla.client.transport import Transport
from ottla.model.errors import ErrorCode
from ottla.wire.message import Message
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

M = TypeVar("M", bound=Message)
T = TypeVar("T")
DEFAULT_TIMEOUT_MS = 30_000
CONNECT_TIMEOUT_MS = 10_000
MAX_ATTEMPTS = 40
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0
NO_NODE = -1


class Client:
    """A blocking client. Only one thread may use it at a time."""

    def __init__(
        self,
        bootstrap_servers: Sequence[Address],
        *,
        client_id: str = "ottla",
        timeout_ms: float = DEFAULT_TIMEOUT_MS,
        security: Security = PLAINTEXT,
    ) -> None:
        self.timeout_ms = timeout_ms
        self.cluster_id: str | None = None
        self.controller_id = NO_NODE
        self._bootstrap_servers = list(bootstrap_servers)
        self._client_id = client_id
        self._transport = Transport(security)
        self._brokers: dict[int, Address] = {}
        self._by_node: dict[int, Connection] = {}
        self._first: Connection | None = None

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        for connection in self._open_connections():
            connection.close()
        self._by_node.clear()
        self._first = None

    @property
    def brokers(self) -> dict[int, Address]:
        """The brokers in the last metadata response, by node id."""
        return dict(self._brokers)

    def deadline(self, purpose: str) -> Deadline:
        """Return a deadline with the client's timeout."""
        return Deadline(self.timeout_ms, purpose)

    def any(self, deadline: Deadline) -> Connection:
        """Return a connection to any broker."""
        for connection in self._open_connections():
            return connection
        self._first = self._connect_to_one(
            [*self._bootstrap_servers, *self._brokers.values()], deadline
        )
        return self._first

    def node(self, node_id: int, deadline: Deadline) -> Connection:
        """Return the connection to this broker, and open it if there is none."""
        self._address_of(
            node_id, deadline
        )  # its metadata request may assign an open connection to the node
        if node_id not in self._by_node:
            self._by_node[node_id] = self.dedicated(node_id, deadline)
        return self._by_node[node_id]

    def dedicated(self, node_id: int, deadline: Deadline) -> Connection:
        """Open a new connection to this broker. The caller must close it."""
        address = self._address_of(node_id, deadline)
        try:
            return self._connect(address, deadline)
        except (Unreachable, TimedOut) as error:
            raise Unreachable(
                f"broker {node_id} advertises {address}, but does not answer there ({error})."
                " Check that it is running, and check its advertised.listeners."
            ) from None

    def controller(self, deadline: Deadline) -> Connection:
        """Return a connection for administrative requests. With KRaft, any broker forwards them."""
        if self.controller_id == NO_NODE:
            self.metadata([], deadline)
        return (
            self.any(deadline)
            if self.controller_id == NO_NODE
            else self.node(self.controller_id, deadline)
        )

    def drop(self, connection: Connection) -> None:
        """Close a connection and remove it."""
        connection.close()
        self._by_node = {
            node: known for node, known in self._by_node.items() if known is not connection
        }
        if self._first is connection:
            self._first = None

    def call(
        self,
        connection: Connection,
        request: Message,
        response: type[M],
        deadline: Deadline,
        *,
        at_most: int | None = None,
    ) -> M:
        """Send a request and return its response. Drop the connection if that fails."""
        try:
            connection.send(request, deadline, at_most=at_most)
            return connection.receive(response, deadline)
        except (ClientError, KeyboardInterrupt):
            self.drop(connection)
            raise

    def metadata(
        self, topics: Iterable[str] | None, deadline: Deadline, *, create: bool = False
    ) -> list[MetadataResponseTopic]:
        """Update the brokers and the controller, and return these topics (None: all topics).

        With `create`, the broker creates missing topics if its configuration allows it.
        """
        named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=create)
        response = self.call(self.any(deadline), request, MetadataResponse, deadline)
        check(response.error_code, "the metadata of the cluster")
        self._learn(response)
        return list(response.topics)

    def retry(self, action: Callable[[], T], deadline: Deadline, *, harmless_twice: bool) -> T:
        """Run `action`, and repeat it after temporary failures until the deadline."""
        pause = FIRST_PAUSE_S
        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return action()
            except (Unreachable, ConnectionLost, Refused) as error:
                if not self._may_repeat(error, harmless_twice) or not deadline.allows(pause):
                    raise
            self.controller_id = NO_NODE
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
        return action()

    def _may_repeat(self, error: ClientError, harmless_twice: bool) -> bool:
        if isinstance(error, Refused):
            return error.retriable and (harmless_twice or error.code in NOT_TRIED)
        if isinstance(error, Unreachable):
            return bool(self._brokers)
        return harmless_twice

    def _open_connections(self) -> list[Connection]:
        first = [self._first] if self._first is not None else []
        return first + list(self._by_node.values())

    def _learn(self, response: MetadataResponse) -> None:
        self._brokers = {
            broker.node_id: Address(broker.host, broker.port) for broker in response.brokers
        }
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self._file_first_connection()

    def _file_first_connection(self) -> None:
        # The bootstrap address is usually that of a broker, so one connection is enough for both.
        first = self._first
        if first is None:
            return
        for node_id, address in self._brokers.items():
            if address == first.address and node_id not in self._by_node:
                self._by_node[node_id], self._first = first, None
                return

    def _address_of(self, node_id: int, deadline: Deadline) -> Address:
        if node_id not in self._brokers:
            self.metadata([], deadline)
        if node_id not in self._brokers:
            raise Refused(
                ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id}", "it is not in the cluster"
            )
        return self._brokers[node_id]

    def _connect(self, address: Address, deadline: Deadline) -> Connection:
        limit = deadline.at_most(CONNECT_TIMEOUT_MS)
        return Connection(address, self._client_id, limit, self._transport)

    def _connect_to_one(self, addresses: Sequence[Address], deadline: Deadline) -> Connection:
        failures: list[str] = []
        for address in dict.fromkeys(addresses):
            try:
                return self._connect(address, deadline)
            except (Unreachable, TimedOut) as error:
                failures.append(str(error))
        raise Unreachable(
            f"no broker answers ({'; '.join(failures)})."
            " Is a broker running? Start one with `ottla up`."
        )
