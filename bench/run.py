"""Compares Ottla with Apache Kafka: `python bench/run.py [--quick] [--only NAME]...`.

The exit code is 0 if all measurements succeed, regardless of the verdicts, and 1 if one fails. If
Java, Maven or a C compiler is missing, the measurements that need it are left out.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from harness import report
from harness.catalogue import running_works
from harness.fresh import FreshWork, StartAndMemory, fresh_works
from harness.machine import describe, others_at_work
from harness.native import group_raw, group_settle, raw_load, rdkafka_load
from harness.problem import BenchError
from harness.results import Results
from harness.runner import Runner
from harness.scale import FULL, QUICK, Scale
from harness.systems import Kafka, Ottla, System
from harness.works import Work

LEFT_OUT_OF_QUICK = (
    "rdkafka-6x100", "rdkafka-6x10240", "latency-10000", "rdkafka-1000x1024",
    "heartbeat-consumer", "settle-consumer",
)  # fmt: skip

WIDTH_IN_A_FILE = 140  # the width of the table without a terminal


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="under three minutes: shorter, one round"
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="run only workloads of this name (with * and ?)",
    )
    parser.add_argument("--rounds", type=int, help="rounds per workload and system (3; quick: 1)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write all measurements to this file"
    )
    parser.add_argument(
        "--markdown",
        type=Path,
        metavar="FILE",
        help="write the table between the markers of this page",
    )
    parser.add_argument("--kafka-version", help="a version, or `newest` to check Maven again")
    parser.add_argument("--without-kafka", action="store_true", help="run only Ottla")
    parser.add_argument(
        "--directory", type=Path, help="the directory for data (default: temporary)"
    )
    parser.add_argument("--keep", action="store_true", help="keep the data and logs of the brokers")
    parser.add_argument(
        "--list", action="store_true", help="print the names of the workloads and exit"
    )
    return parser.parse_args()


def chosen(scale: Scale, only: list[str] | None, quick: bool) -> tuple[list[Work], list[FreshWork]]:
    """Return the workloads to run: the named ones, else all (a quick run leaves out a few)."""

    def wanted(name: str) -> bool:
        if only:
            return any(fnmatchcase(name, pattern) for pattern in only)
        return not (quick and name in LEFT_OUT_OF_QUICK)

    return (
        [work for work in running_works(scale) if wanted(work.name)],
        [work for work in fresh_works(scale) if wanted(work.name)],
    )


def without_compiler(
    works: list[Work], fresh: list[FreshWork], scale: Scale, circumstances: list[str]
) -> tuple[list[Work], list[FreshWork]]:
    """Return the workloads that can run, if the load generators cannot be compiled."""
    try:
        raw_load(), rdkafka_load(), group_raw(), group_settle()
    except BenchError as error:
        circumstances.append(f"{error}; only start-up time and idle memory are measured")
        return [], [StartAndMemory(replace(scale, memory_bytes=0))]
    return works, fresh


def available_systems(options: argparse.Namespace, circumstances: list[str]) -> list[System]:
    """Return Kafka and Ottla, or the one that can run."""
    makers: list[tuple[str, Callable[[], System]]] = [("Ottla", Ottla)]
    if not options.without_kafka:
        makers.insert(0, ("Kafka", lambda: Kafka(options.kafka_version)))
    systems = []
    for name, make in makers:
        try:
            systems.append(make())
        except BenchError as error:
            circumstances.append(f"{error}; {name}'s column and the ratios stay blank")
    return systems


def measure(console: Console, options: argparse.Namespace, scale: Scale) -> Runner:
    """Run everything. Remove the data at the end unless it is to be kept."""
    works, fresh = chosen(scale, options.only, options.quick)
    if not works and not fresh:
        raise BenchError("there is no such workload; --list shows their names")
    circumstances: list[str] = []
    with console.status("looking for the systems (the first run downloads Apache Kafka)"):
        systems = available_systems(options, circumstances)
        works, fresh = without_compiler(works, fresh, scale, circumstances)
        circumstances += others_at_work()
    for text in circumstances:
        console.print(text, style="yellow", markup=False)
    if not systems:
        raise BenchError("there is nothing to measure")
    runner = Runner(systems, scale, options.keep, Results(circumstances=circumstances))
    base = Path(tempfile.mkdtemp(prefix="ottla-bench-", dir=options.directory))
    try:
        run_with_progress(console, runner, base, works, fresh)
    finally:
        if options.keep:
            console.print(f"data and logs are kept in {base}", markup=False)
        else:
            shutil.rmtree(base, ignore_errors=True)
    return runner


def run_with_progress(
    console: Console, runner: Runner, base: Path, works: list[Work], fresh: list[FreshWork]
) -> None:
    """Run the workloads with a progress bar."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("starting")
        progress.update(bar, total=runner.steps(works, fresh))
        runner.say = lambda text: progress.update(bar, description=text)
        runner.step = lambda: progress.advance(bar)
        runner.run_all(base, works, fresh)


def publish(console: Console, options: argparse.Namespace, scale: Scale, runner: Runner) -> None:
    """Print the table and write the requested files."""
    gigabytes = scale.restart_segments * scale.restart_segment_bytes / 1e9
    table_rows = report.rows(
        runner.results, f"{gigabytes:.0f} GB in {scale.restart_segments} segments"
    )
    setting = describe(list(runner.systems))
    report.print_table(console, table_rows, runner.results.remarks)
    if options.json:
        report.write_json(options.json, runner.results, setting)
    if options.markdown:
        text = report.markdown(table_rows, setting, runner.results.remarks)
        report.write_markdown(options.markdown, text)


def end_run(number: int, frame: FrameType | None) -> None:
    """End the run on a signal as on Ctrl-C: stop the brokers and remove the data."""
    del frame
    sys.exit(128 + number)


def main() -> int:
    """Run the benchmark and return the exit code."""
    options = arguments()
    console = Console(width=None if sys.stdout.isatty() else WIDTH_IN_A_FILE)
    scale = QUICK if options.quick else FULL
    if options.rounds:
        scale = replace(scale, rounds=options.rounds, more_rounds=0)
    if options.list:
        works, fresh = chosen(scale, None, quick=False)
        names = [work.name for work in works] + [work.name for work in fresh]
        console.print("\n".join(names), markup=False)
        return 0
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_run)
    try:
        if options.markdown:
            report.halves_around_table(
                options.markdown
            )  # so that it fails before the measurements, not after them
        runner = measure(console, options, scale)
        publish(console, options, scale, runner)
    except BenchError as error:
        console.print(f"bench: {error}", style="red", markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("bench: interrupted; brokers are stopped and data is removed", style="yellow")
        return 130
    return 1 if runner.results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
