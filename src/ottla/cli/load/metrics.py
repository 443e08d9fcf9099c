"""The figures of a running load over HTTP: /metrics for Prometheus, /json as JSON."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ottla.cli.errors import DataError
from ottla_spark.loads.run.listener import Listener

if TYPE_CHECKING:
    from ottla_spark.loads.run.tally import Tally

_COUNTERS = {
    "records": "Records that were loaded.",
    "rows": "Rows that were added to the table.",
    "dead_letters": "Records that went to the dead letters.",
    "batches": "Batches that were committed.",
    "files": "Data files that were written.",
    "bytes": "Bytes of the data files.",
}
_GAUGES = {
    "lag": "Records of the topic that are not loaded yet.",
    "updated": "Seconds since 1970 at the last report.",
}


@dataclass
class Figures:
    """The figures of one topic and table, over all runs of this process."""

    topic: str
    table: str
    before: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTERS, 0))
    now: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTERS, 0))
    lag: int = 0
    updated: float = 0.0

    def started(self, records: int) -> None:
        """Begin a run with this many records to load."""
        self.before = {name: self.before[name] + self.now[name] for name in _COUNTERS}
        self.now = dict.fromkeys(_COUNTERS, 0)
        self.lag, self.updated = records, time.time()

    def progress(self, tally: Tally, lag: int) -> None:
        """Take the counts of the run so far."""
        counts = (tally.records, tally.rows, tally.dead_letters, tally.batches, tally.files)
        self.now = dict(zip(_COUNTERS, (*counts, tally.size), strict=True))
        self.lag, self.updated = lag, time.time()

    def as_json(self) -> dict[str, str | int | float]:
        """Return all figures by name."""
        counts = {name: self.before[name] + self.now[name] for name in _COUNTERS}
        return {
            "topic": self.topic,
            "table": self.table,
            **counts,
            "lag": self.lag,
            "updated": round(self.updated, 3),
        }


class FiguresListener(Listener):
    """Passes the events of a load to another listener, and keeps its figures."""

    def __init__(self, listener: Listener, figures: Figures) -> None:
        self._listener = listener
        self._figures = figures

    def say(self, line: str) -> None:
        self._listener.say(line)

    def started(self, records: int) -> None:
        self._figures.started(records)
        self._listener.started(records)

    def progress(self, tally: Tally, lag: int) -> None:
        self._figures.progress(tally, lag)
        self._listener.progress(tally, lag)


class MetricsServer:
    """Serves the figures of all loads of this process on a port; 0 chooses a free one."""

    def __init__(self, port: int | None) -> None:
        self._figures: dict[tuple[str, str], Figures] = {}
        self._server = None if port is None else _bound(port, self._figures)

    @property
    def port(self) -> int | None:
        """The port; None if nothing is served."""
        return None if self._server is None else int(self._server.server_address[1])

    def watched(self, listener: Listener, topic: str, table: str) -> Listener:
        """Return a listener that also keeps figures."""
        figures = self._figures.setdefault((topic, table), Figures(topic, table))
        return FiguresListener(listener, figures)

    def __enter__(self) -> Self:
        if self._server is not None:
            threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


def prometheus_text(figures: list[Figures]) -> str:
    """Return the figures in Prometheus's text format."""
    lines = []
    for name, about in (_COUNTERS | _GAUGES).items():
        is_counter = name in _COUNTERS
        full = f"ottla_load_{name}_total" if is_counter else f"ottla_load_{name}"
        full = "ottla_load_updated_timestamp_seconds" if name == "updated" else full
        lines += [f"# HELP {full} {about}", f"# TYPE {full} {'counter' if is_counter else 'gauge'}"]
        for each in figures:
            labels = f'topic="{_escaped(each.topic)}",table="{_escaped(each.table)}"'
            lines.append(f"{full}{{{labels}}} {each.as_json()[name]}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _bound(port: int, figures: dict[tuple[str, str], Figures]) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown = list(figures.values())
            if self.path == "/metrics":
                self._answer(200, "text/plain; version=0.0.4", prometheus_text(shown))
            elif self.path == "/json":
                loads = [each.as_json() for each in shown]
                self._answer(200, "application/json", json.dumps({"loads": loads}) + "\n")
            else:
                self._answer(404, "text/plain", "ask for /metrics or /json\n")

        def _answer(self, status: int, kind: str, text: str) -> None:
            content = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *words: object) -> None:
            """Print nothing."""

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise DataError(f"cannot serve metrics on port {port}: {error.strerror}") from None
