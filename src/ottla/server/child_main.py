"""The program of a broker that another process starts and stops: see `ottla.testing`.

It reads one line from stdin: a JSON object with the broker's `properties`, `node_id`, `memory`, and
the number of `brokers` that start together. It prints `ready ADDRESS` or `refused REASON`. When
its stdin closes, it stops without waiting for other brokers; on SIGTERM they take over first.
"""

from __future__ import annotations

import json
import sys

from ottla.server.forked_brokers import BrokerStart, serve_child


def main() -> int:
    """Run the broker and return its exit code."""
    given = json.loads(sys.stdin.buffer.readline())
    start = BrokerStart(
        given["node_id"], given["properties"], given["memory"], None, given["brokers"]
    )
    return serve_child(start, sys.stdin.fileno(), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
