"""Sends the name of a streaming query from an executor to the driver's process of the source.

Spark does not tell the driver's process the name. Executors know it: their task context has the
query's id and, in the description of the job, its name. So the driver's process listens on a
port, and the first task of a batch connects and sends the name once. The port is opened on the
address from which this machine connects to the brokers, because executors connect to the
brokers too. A message must contain the token that was sent with the task. If executors cannot
connect to this port, the driver's process warns that the group must be set with `groupId`.
"""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import socket
import threading
from collections.abc import Callable
from typing import NamedTuple

from ottla.client.address import Address, parse_addresses

MAX_MESSAGE_BYTES = 4_096
SEND_TIMEOUT_S = 2.0
LISTEN_POLL_S = 1.0
_log = logging.getLogger(__name__)


class NameRequest(NamedTuple):
    """The address to send the query's name to, and the token to send with it."""

    host: str
    port: int
    token: str


class NameListener:
    """Listens until a task has sent the query's name. Then it calls `on_name`, once."""

    def __init__(self, bootstrap_servers: str, on_name: Callable[[str], None]) -> None:
        self._on_name = on_name
        self._token = secrets.token_hex(16)
        self._closed = threading.Event()
        host = _local_address(parse_addresses(bootstrap_servers))
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family)
        self._listener.settimeout(LISTEN_POLL_S)
        self.request = NameRequest(host, self._listener.getsockname()[1], self._token)
        threading.Thread(target=self._listen, name="ottla-query-name", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()

    def _listen(self) -> None:
        with self._listener:
            while not self._closed.is_set():
                try:
                    connection, _ = self._listener.accept()
                except TimeoutError:
                    continue
                with connection:
                    name = self._receive(connection)
                if name is not None:
                    self._closed.set()
                    self._on_name(name)

    def _receive(self, connection: socket.socket) -> str | None:
        connection.settimeout(SEND_TIMEOUT_S)
        received = b""
        try:
            while len(received) <= MAX_MESSAGE_BYTES and not received.endswith(b"\n"):
                more = connection.recv(MAX_MESSAGE_BYTES)
                if not more:
                    return None
                received += more
            message = json.loads(received)
            token, name = str(message["token"]), str(message["name"])
        except (OSError, ValueError, KeyError, TypeError):
            return None  # not one of our tasks
        return name if hmac.compare_digest(token.encode(), self._token.encode()) else None


def send_name(request: NameRequest) -> None:
    """Send the name of this task's query to the driver's process."""
    name = current_query()
    if name is None:
        return
    message = json.dumps({"token": request.token, "name": name}).encode() + b"\n"
    try:
        with socket.create_connection((request.host, request.port), SEND_TIMEOUT_S) as connection:
            connection.sendall(message)
    except OSError as error:
        # Perhaps another task has sent it and the port is closed. If not, the driver warns.
        _log.info("cannot send the query's name to the driver at %s:%s: %s", *request[:2], error)


def current_query() -> str | None:
    """Return the name of the streaming query of this task, or its id if it has no name."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return None
    query_id = context.getLocalProperty("sql.streaming.queryId")
    if not query_id:
        return None
    return name_in_description(context.getLocalProperty("spark.job.description"), query_id)


def name_in_description(description: str | None, query_id: str) -> str:
    """Return the query's name in Spark's description of the job, or its id."""
    lines = (description or "").splitlines()
    # The user may have set another description: the second line must have the query's id.
    if len(lines) >= 2 and lines[1].strip() == f"id = {query_id}" and lines[0].strip():
        return lines[0].strip()
    return query_id


def _local_address(servers: list[Address]) -> str:
    """Return the address from which this machine connects to a broker. Nothing is sent."""
    for server in servers:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                *server, type=socket.SOCK_DGRAM
            )[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"
