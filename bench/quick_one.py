"""Runs one workload on a running broker: `python bench/quick_one.py produce64`.

Use it to compare before and after a change. It does not compare with Kafka.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from statistics import median

from harness.catalogue import running_works
from harness.problem import BenchError
from harness.scale import QUICK
from harness.target import target_at
from harness.works import Figures, Work


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", choices=[work.name for work in running_works(QUICK)])
    parser.add_argument("--port", type=int, default=9092, help="of the broker on 127.0.0.1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=QUICK.load_s, help="measured per round")
    return parser.parse_args()


def chosen_work(options: argparse.Namespace) -> Work:
    """Return the named workload with the requested duration."""
    scale = replace(QUICK, load_s=options.seconds, latency_s=options.seconds)
    return next(work for work in running_works(scale) if work.name == options.work)


def run(work: Work, port: int, rounds: int) -> list[Figures]:
    """Print the figures of each round. Delete the workload's topic at the end."""
    target = target_at(port)
    work.prepare(target)
    try:
        measured = []
        for _ in range(rounds):
            measured.append(work.measure(target))
            print(
                "  ".join(f"{key.lstrip('_')} {value:,.3f}" for key, value in measured[-1].items())
            )
        return measured
    finally:
        work.finish(target)


def main() -> int:
    """Run the workload and return the exit code."""
    options = arguments()
    try:
        measured = run(chosen_work(options), options.port, options.rounds)
    except BenchError as error:
        print(f"quick_one: {error}", file=sys.stderr)
        return 1
    medians = {key: median(one[key] for one in measured) for key in measured[0]}
    print(
        "median  " + "  ".join(f"{key.lstrip('_')} {value:,.3f}" for key, value in medians.items())
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
