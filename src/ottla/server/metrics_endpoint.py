"""An HTTP endpoint for Prometheus: `GET /metrics`.

It has a thread of its own, and one for each connection: a client that sends half a request keeps
nobody waiting. If there are too many, the oldest connection is closed. The figures are read on the
broker's loop, for one request at a time, so that they belong together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from socket import SHUT_RDWR, socket
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Final

from ottla.broker.metrics.prometheus_text import CONTENT_TYPE
from ottla.server.errors import StartupError

PATH: Final = "/metrics"
_CLIENT_TIMEOUT_S: Final = 5
_LOOP_TIMEOUT_S: Final = 5
MOST_CONNECTIONS: Final = 16


class _Server(ThreadingMixIn, HTTPServer):
    """A server with a few threads.

    It does not look up the name of its address, which takes seconds on some Macs.
    """

    daemon_threads = True
    request_queue_size = 64
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: list[socket] = []
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread; hang up on the oldest one if there are too many."""
        with self._lock:
            self._open.append(request)
            if len(self._open) > MOST_CONNECTIONS:
                self._hang_up(self._open.pop(0))
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection whose thread has done its work."""
        with self._lock:
            if request in self._open:
                self._open.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Write nothing: the client is gone."""

    @staticmethod
    def _hang_up(connection: socket) -> None:
        """Let the thread of a connection end."""
        with suppress(OSError):
            connection.shutdown(SHUT_RDWR)


class MetricsEndpoint:
    """Bound when it is made; `start`, then `close`.

    `read` calls its argument with the text, on the loop.
    """

    def __init__(
        self, host: str, port: int, read: Callable[[Callable[[bytes], None]], None]
    ) -> None:
        """Listen; raise StartupError if the port cannot be had."""
        self._read = read
        self._reading = threading.Lock()
        try:
            self._server = _Server((host, port), self._handler())
        except OSError as error:
            raise StartupError(
                f"cannot listen on {host}:{port} for metrics: {error.strerror};"
                " choose another --metrics-port (0 picks a free one)"
            ) from error
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port that is listened on, also where 0 was asked for."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Serve, in a thread."""
        self._thread = threading.Thread(target=self._serve, name="ottla-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving, and listening."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def _serve(self) -> None:
        self._server.serve_forever(poll_interval=0.1)

    def _text(self) -> bytes | None:
        """Return the metrics; None if the loop does not answer in time."""
        found: list[bytes] = []
        done = threading.Event()

        def take(text: bytes) -> None:
            found.append(text)
            done.set()

        with self._reading:
            self._read(take)
            return found[0] if done.wait(_LOOP_TIMEOUT_S) else None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            timeout = _CLIENT_TIMEOUT_S

            def do_GET(self) -> None:
                if self.path.partition("?")[0] != PATH:
                    self.send_error(404, f"only {PATH} is here")
                    return
                text = endpoint._text()
                if text is None:
                    self.send_error(503, "the broker does not answer")
                    return
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:
                """Write nothing: a scrape every few seconds is no news."""

        return Handler
