"""How the driver's process of a stream learns the name of its query.

Spark does not tell it. Executors know: their task context has the query's id and, in the
description of the job, its name. So the driver's process listens on a port until it has
heard, and the first task of a batch tells it, once. The port is opened on the address from
which this machine reaches the brokers (executors reach them too), and only a message with
the token that travelled with the task counts. Where executors cannot reach that port, the
group has to be named with the option `groupId`; the driver's process warns of it.
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
TELL_TIMEOUT_S = 2.0
LISTEN_POLL_S = 1.0
_log = logging.getLogger(__name__)


class NameRequest(NamedTuple):
    """Where to tell the query's name, and the token that goes with it."""

    host: str
    port: int
    token: str


class NameDesk:
    """Listens until a task has told the query's name; then `on_name` is called, once."""

    def __init__(self, bootstrap_servers: str, on_name: Callable[[str], None]) -> None:
        self._on_name = on_name
        self._token = secrets.token_hex(16)
        self._closed = threading.Event()
        host = _own_address(parse_addresses(bootstrap_servers))
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
        connection.settimeout(TELL_TIMEOUT_S)
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


def tell_name(request: NameRequest) -> None:
    """Tell the driver's process the name of the query that this task belongs to."""
    name = current_query()
    if name is None:
        return
    message = json.dumps({"token": request.token, "name": name}).encode() + b"\n"
    try:
        with socket.create_connection((request.host, request.port), TELL_TIMEOUT_S) as connection:
            connection.sendall(message)
    except OSError as error:
        # It may have been told by another task and listen no more; if not, it will warn.
        _log.info("the driver was not told the query's name at %s:%s: %s", *request[:2], error)


def current_query() -> str | None:
    """The name of the streaming query whose task runs here, or its id when it has no name."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return None
    query_id = context.getLocalProperty("sql.streaming.queryId")
    if not query_id:
        return None
    return name_in_description(context.getLocalProperty("spark.job.description"), query_id)


def name_in_description(description: str | None, query_id: str) -> str:
    """The query's name in the description Spark gives to the jobs of its batches, or its id."""
    lines = (description or "").splitlines()
    # Somebody may have described the job otherwise: the second line has to be the query's own.
    if len(lines) >= 2 and lines[1].strip() == f"id = {query_id}" and lines[0].strip():
        return lines[0].strip()
    return query_id


def _own_address(servers: list[Address]) -> str:
    """The address from which this machine reaches a broker; nothing is sent to find out."""
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
