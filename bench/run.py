"""Compares Ottla with Apache Kafka: `python bench/run.py [--cluster] [--quick] [--only NAME]...`.

With `--before DIR` it compares Ottla with an earlier version of itself, from another checkout.

It compares one broker of each, or with `--cluster` three nodes of each.

The exit code is 0 if all measurements succeed, regardless of the verdicts, and 1 if one fails. If
Java, Maven or a C compiler is missing, the measurements that need it are left out.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from harness import report
from harness.broker import Broker
from harness.catalogue import running_works
from harness.cluster import Cluster, ClusterSystem
from harness.cluster_faults import FRESH_NAMES, fresh_cluster_works
from harness.cluster_works import warm_cluster_works, warm_up_cluster
from harness.fresh import FreshWork, StartAndMemory, fresh_works
from harness.java import java_launcher
from harness.machine import describe, others_at_work
from harness.native import group_raw, group_settle, raw_load, rdkafka_load, transactions_load
from harness.problem import BenchError
from harness.results import Results
from harness.runner import B, Runner
from harness.scale import FULL, QUICK, Scale
from harness.systems import CompiledOttla, EarlierOttla, Kafka, Ottla
from harness.transaction_works import JavaCommits
from harness.works import Work

LEFT_OUT_OF_QUICK = (
    "rdkafka-6x100", "rdkafka-6x10240", "latency-10000", "rdkafka-1000x1024",
    "heartbeat-consumer", "settle-consumer", "in-transactions", "java-transactions",
)  # fmt: skip

CLUSTER_ROUNDS_LIMIT_S = 240.0
"""No further round of a workload begins after this time, so that a run ends on a slow machine."""

CLUSTER_SETTLE_S = 2.0
"""The time that a cluster gets after a pause: its nodes have to hear of each other again."""

WIDTH_IN_A_FILE = 140  # the width of the table without a terminal


class Measured(NamedTuple):
    """What was measured, and on which machine with which versions."""

    results: Results
    setting: dict[str, str]


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="under three minutes: shorter, one round"
    )
    parser.add_argument(
        "--cluster", action="store_true", help="compare clusters of three nodes, not one broker"
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
        "--before",
        type=Path,
        metavar="DIR",
        help="compare with the Ottla in this checkout, not with Kafka",
    )
    parser.add_argument(
        "--plain",
        action="store_true",
        help="measure Ottla without compiled modules (default: as in the wheels of a release)",
    )
    parser.add_argument(
        "--directory", type=Path, help="the directory for data (default: temporary)"
    )
    parser.add_argument("--keep", action="store_true", help="keep the data and logs of the brokers")
    parser.add_argument(
        "--list", action="store_true", help="print the names of the workloads and exit"
    )
    options = parser.parse_args()
    if options.before and options.markdown:
        parser.error("--markdown writes the comparison with Kafka: leave out --before")
    if options.plain and options.markdown:
        parser.error("--markdown writes the figures of the compiled Ottla: leave out --plain")
    return options


def wanted_names(only: list[str] | None, quick: bool) -> Callable[[str], bool]:
    """Return whether a workload runs: the named ones, else all (a quick run leaves out a few)."""

    def wanted(name: str) -> bool:
        if only:
            return any(fnmatchcase(name, pattern) for pattern in only)
        return not (quick and name in LEFT_OUT_OF_QUICK)

    return wanted


def chosen(
    scale: Scale, wanted: Callable[[str], bool]
) -> tuple[list[Work], list[FreshWork[Broker]]]:
    """Return the workloads of one broker to run."""
    return (
        [work for work in running_works(scale) if wanted(work.name)],
        [work for work in fresh_works(scale) if wanted(work.name)],
    )


def chosen_for_clusters(
    scale: Scale, wanted: Callable[[str], bool]
) -> tuple[list[Work], list[FreshWork[Cluster]]]:
    """Return the workloads of clusters to run."""
    works = [work for work in warm_cluster_works(scale) if wanted(work.name)]
    return works, fresh_cluster_works(scale, wanted)


def without_compiler(
    works: list[Work], fresh: list[FreshWork[Broker]], scale: Scale, circumstances: list[str]
) -> tuple[list[Work], list[FreshWork[Broker]]]:
    """Return the workloads that can run, if the load generators cannot be compiled."""
    try:
        raw_load(), rdkafka_load(), group_raw(), group_settle(), transactions_load()
    except BenchError as error:
        circumstances.append(f"{error}; only start-up time and idle memory are measured")
        return [], [StartAndMemory(replace(scale, memory_bytes=0))]
    return works, fresh


def without_java(works: list[Work], circumstances: list[str]) -> list[Work]:
    """Return the workloads that can run, if there is no Java or no client of Kafka."""
    if any(isinstance(work, JavaCommits) for work in works):
        try:
            java_launcher()
        except BenchError as error:
            circumstances.append(f"{error}; the rows of Kafka's own client are left out")
            return [work for work in works if not isinstance(work, JavaCommits)]
    return works


def released_ottla(circumstances: list[str]) -> Ottla:
    """Return Ottla as a release has it: compiled, if there is a C compiler."""
    try:
        return CompiledOttla()
    except BenchError as error:
        circumstances.append(f"{error}; Ottla's modules are not compiled")
        return Ottla()


def available_systems(options: argparse.Namespace, circumstances: list[str]) -> list[Kafka | Ottla]:
    """Return Kafka and Ottla, or the one that can run."""
    makers: list[tuple[str, Callable[[], Kafka | Ottla]]] = [
        ("Ottla", Ottla if options.plain else lambda: released_ottla(circumstances))
    ]
    if options.before:
        makers.insert(0, (EarlierOttla.name, lambda: EarlierOttla(options.before)))
    elif not options.without_kafka:
        makers.insert(0, ("Kafka", lambda: Kafka(options.kafka_version)))
    systems = []
    for name, make in makers:
        try:
            systems.append(make())
        except BenchError as error:
            circumstances.append(f"{error}; {name}'s column and the ratios stay blank")
    return systems


def measure(console: Console, options: argparse.Namespace, scale: Scale) -> Measured:
    """Run everything. Remove the data at the end unless it is to be kept."""
    wanted = wanted_names(options.only, options.quick)
    circumstances: list[str] = []
    if options.plain:
        circumstances.append("Ottla's modules of the hot paths are not compiled (--plain)")
    looking = "looking for the systems (the first run compiles Ottla and downloads Apache Kafka)"
    with console.status(looking):
        systems = available_systems(options, circumstances)
        circumstances += others_at_work()
    for text in circumstances:
        console.print(text, style="yellow", markup=False)
    if not systems:
        raise BenchError("there is nothing to measure")
    peer = EarlierOttla.name if options.before else Kafka.name
    results = Results(peer, circumstances=circumstances)
    base = Path(tempfile.mkdtemp(prefix="ottla-bench-", dir=options.directory))
    try:
        if options.cluster:
            clusters = [ClusterSystem(system) for system in systems]
            runner = Runner(
                clusters,
                scale,
                options.keep,
                results,
                warm_up_cluster,
                CLUSTER_SETTLE_S,
                CLUSTER_ROUNDS_LIMIT_S,
            )
            run_with_progress(console, runner, base, *chosen_for_clusters(scale, wanted))
        else:
            works, fresh = without_compiler(*chosen(scale, wanted), scale, circumstances)
            works = without_java(works, circumstances)
            run_with_progress(
                console, Runner(systems, scale, options.keep, results), base, works, fresh
            )
    finally:
        if options.keep:
            console.print(f"data and logs are kept in {base}", markup=False)
        else:
            shutil.rmtree(base, ignore_errors=True)
    return Measured(results, describe(systems))


def run_with_progress(
    console: Console,
    runner: Runner[B],
    base: Path,
    works: Sequence[Work],
    fresh: Sequence[FreshWork[B]],
) -> None:
    """Run the workloads with a progress bar."""
    if not works and not fresh:
        raise BenchError("there is no such workload; --list shows their names")
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("starting")
        progress.update(bar, total=runner.steps(works, fresh))
        runner.say = lambda text: progress.update(bar, description=text)
        runner.step = lambda: progress.advance(bar)
        runner.run_all(base, works, fresh)


def publish(
    console: Console, options: argparse.Namespace, scale: Scale, measured: Measured
) -> None:
    """Print the table and write the requested files."""
    results, setting = measured
    table_rows = report.rows(results, scale.sizes())
    report.print_table(console, table_rows, results)
    if options.json:
        report.write_json(options.json, results, setting)
    if options.markdown:
        text = report.markdown(table_rows, setting, results.remarks)
        report.write_markdown(options.markdown, text, *markers(options))


def markers(options: argparse.Namespace) -> tuple[str, str]:
    """Return the lines of the page between which the table stands."""
    if options.cluster:
        return report.CLUSTER_BEGIN, report.CLUSTER_END
    return report.BEGIN, report.END


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
        everything = wanted_names(None, quick=False)
        if options.cluster:
            names = [work.name for work in chosen_for_clusters(scale, everything)[0]]
            names += FRESH_NAMES
        else:
            works, fresh = chosen(scale, everything)
            names = [work.name for work in works] + [work.name for work in fresh]
        console.print("\n".join(names), markup=False)
        return 0
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_run)
    try:
        if options.markdown:
            # so that it fails before the measurements, not after them
            report.halves_around_table(options.markdown, *markers(options))
        measured = measure(console, options, scale)
        publish(console, options, scale, measured)
    except BenchError as error:
        console.print(f"bench: {error}", style="red", markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("bench: interrupted; brokers are stopped and data is removed", style="yellow")
        return 130
    return 1 if measured.results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
