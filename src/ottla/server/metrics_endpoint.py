"""An HTTP endpoint for Prometheus: `GET /metrics`.

It has a thread of its own and serves one request at a time. The figures are read on the broker's
loop, so that they belong together; the thread waits for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import TCPServer
from typing import Final

from ottla.broker.metrics.prometheus_text import CONTENT_TYPE
from ottla.server.errors import StartupError

PATH: Final = "/metrics"
_CLIENT_TIMEOUT_S: Final = 5
_LOOP_TIMEOUT_S: Final = 5


class _Server(HTTPServer):
    """A server that does not look up the name of its address, which takes seconds on some Macs."""

    def server_bind(self) -> None:
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]


class MetricsEndpoint:
    """Bound when it is made; `start`, then `close`.

    `read` calls its argument with the text, on the loop.
    """

    def __init__(
        self, host: str, port: int, read: Callable[[Callable[[bytes], None]], None]
    ) -> None:
        """Listen; raise StartupError if the port cannot be had."""
        self._read = read
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
