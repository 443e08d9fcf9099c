"""A schema registry: real HTTP, with the schemas it is given."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def registry(schemas: dict[int, dict[str, str]], login: str = "") -> Iterator[str]:
    """Yield a schema registry on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if login and self.headers["Authorization"] != f"Basic {login}":
                self.send_error(401)
                return
            found = schemas.get(int(self.path.removeprefix("/schemas/ids/")))
            if found is None:
                self.send_error(404)
                return
            body = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
