"""Measures the least that a replicated message takes here: `python bench/hops.py`.

`native/hops.c` sends a message from a client to a leader, to two followers, back to the leader and
to a consumer, and does nothing else. It runs with a client of its own and with librdkafka, without
and with a write to a file on each of the three nodes, in turn. No broker can be faster than that.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable
from statistics import median

from harness.native import hops, rdkafka_load

RATE = 1000
RECORD_BYTES = 100
WARM_S = 1.0


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="measured per round")
    return parser.parse_args()


def report_of(command: list[str]) -> dict[str, float]:
    """Run a load generator and return its report."""
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    report: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return report


def with_own_client(writes: int, seconds: float) -> dict[str, float]:
    """Return the latencies with a client that only sends and receives."""
    measured = [RECORD_BYTES, RATE, WARM_S, seconds, writes]
    return report_of([str(hops()), "raw", *map(str, measured)])


def with_librdkafka(writes: int, seconds: float) -> dict[str, float]:
    """Return the latencies with a producer and a consumer of librdkafka."""
    nodes = subprocess.Popen(
        [str(hops()), "serve", str(writes)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert nodes.stdout is not None
    try:
        port = nodes.stdout.readline().strip()
        measured = ["latency", port, "hops", "all", RATE, RECORD_BYTES, WARM_S, seconds]
        return report_of([str(rdkafka_load()), *map(str, measured)])
    finally:
        nodes.kill()
        nodes.wait()


def main() -> None:
    """Run all of them in turn and print the medians."""
    options = arguments()
    works: dict[str, Callable[[], dict[str, float]]] = {
        "hops alone": lambda: with_own_client(0, options.seconds),
        "hops and writes": lambda: with_own_client(1, options.seconds),
        "hops, librdkafka": lambda: with_librdkafka(0, options.seconds),
        "hops and writes, librdkafka": lambda: with_librdkafka(1, options.seconds),
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in works}
    for _ in range(options.rounds):
        for name, work in works.items():
            found[name].append(work())
    for name, reports in found.items():
        p50 = [each["p50_ms"] for each in reports]
        p99 = median(each["p99_ms"] for each in reports)
        print(
            f"{name:30} p50 {median(p50):.3f} ms ({min(p50):.3f} to {max(p50):.3f}), p99 {p99:.3f}"
        )


if __name__ == "__main__":
    main()
