"""`ottla compact`: have the brokers clean a compacted topic now.

Kafka's protocol has no request for that. So this lowers three settings of the topic for a while,
which make every record due for cleaning, and watches the topic's logs. Brokers of Ottla tell how
far a log is clean, and why it cannot be cleaned. With others, it ends when the sizes stay the same.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Annotated, Final

from cyclopts import Parameter

from ottla.cli.errors import FAILED, OK, complain, tell
from ottla.cli.options import BootstrapServer, CommandConfig, Json, connect
from ottla.cli.output import JsonValue, counted, print_json
from ottla.cli.sizes import size_text
from ottla.client.cluster import Client
from ottla.client.configs import (
    ConfigChange,
    Resource,
    ResourceType,
    Setting,
    alter_configs,
    describe_configs,
)
from ottla.client.topics.log_sizes import LogDescription, describe_log_dirs, log_sizes
from ottla.client.topics.topics import describe_topics
from ottla.model.ids import TopicPartition

EAGER: Final = {
    "min.cleanable.dirty.ratio": "0",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "1",
}
"""With these settings all records but those of the last milliseconds are to be cleaned."""

_INTERVAL_S: Final = 0.25


def compact(
    topic: Annotated[str, Parameter(help="A topic with cleanup.policy=compact.")],
    *,
    settle: Annotated[
        float,
        Parameter(
            help="If brokers do not say how far their logs are clean, end when these have not"
            " changed for this many seconds. For Apache Kafka, choose more than"
            " log.cleaner.backoff.ms (15 s)."
        ),
    ] = 5.0,
    timeout: Annotated[float, Parameter(help="Give up after this many seconds.")] = 600.0,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Have the brokers remove old records of a compacted topic now, active segments included.

    While it runs, it lowers min.cleanable.dirty.ratio, min.compaction.lag.ms and
    max.compaction.lag.ms of the topic. It shows how the logs shrink. If the topic is in the remote
    tier, the remote part is cleaned as well. Ctrl-C ends it and restores the settings.
    """
    with connect(bootstrap_server, command_config) as client:
        resource = Resource(ResourceType.TOPIC, topic)
        settings = describe_configs(client, [resource], client.deadline("settings"))[resource]
        policy = next((s.value for s in settings if s.name == "cleanup.policy"), "") or ""
        if "compact" not in policy:
            complain(f"{topic} has cleanup.policy={policy}: only compacted topics can be cleaned")
            return FAILED
        (described,) = describe_topics(client, [topic])
        names = [TopicPartition(topic, each.partition) for each in described.partitions]
        ends = {name: described.partitions[n].latest_offset for n, name in enumerate(names)}
        before = _sizes(client, names)
        with made_eager(client, resource, settings):
            not_clean = watch(client, ends, sum(before.values()), settle, timeout)
        after = _sizes(client, names)
    is_done = not not_clean
    if json:
        rows: list[JsonValue] = [
            {"broker": b, "partition": p.partition, "before": size, "after": after.get((b, p), 0)}
            for (b, p), size in sorted(before.items())
        ]
        print_json({"topic": topic, "finished": is_done, "replicas": rows})
    else:
        total, left = sum(before.values()), sum(after.values())
        print(
            f"{topic}: {counted(len(before), 'replica')}, {size_text(total)} -> {size_text(left)}"
        )
    for log in not_clean:
        complain(f"broker {log.broker} {_why_not(log, timeout)}")
    return OK if is_done else FAILED


def _why_not(log: LogDescription, timeout_s: float) -> str:
    if log.uncleanable_reason is not None:
        return f"does not clean {log.partition}: {log.uncleanable_reason}"
    if log.first_dirty_offset is None:
        return f"still changed {log.partition} after {timeout_s:g} s"
    return (
        f"has cleaned {log.partition} up to offset {log.first_dirty_offset} after {timeout_s:g} s:"
        " the cleaner needs longer, or a transaction is open"
    )


def _sizes(client: Client, names: list[TopicPartition]) -> dict[tuple[int, TopicPartition], int]:
    return log_sizes(client, names, client.deadline("log sizes"))


@contextmanager
def made_eager(client: Client, resource: Resource, settings: list[Setting]) -> Iterator[None]:
    """Make everything due for cleaning, and restore the topic's settings in the end."""
    own = {s.name: s.value or "" for s in settings if s.name in EAGER and s.is_own}
    deadline = client.deadline("settings")
    alter_configs(client, resource, ConfigChange(EAGER, ()), deadline)
    try:
        yield
    finally:
        unset = [name for name in EAGER if name not in own]
        alter_configs(client, resource, ConfigChange(own, unset), client.deadline("settings"))


def watch(
    client: Client,
    ends: Mapping[TopicPartition, int | None],
    total: int,
    settle_s: float,
    timeout_s: float,
) -> list[LogDescription]:
    """Wait until the logs are clean up to these offsets; return those that are not.

    A log whose broker does not tell how far it is clean counts as clean once it stays the same.
    """
    began = changed = time.monotonic()
    last: list[object] = []
    with ExitStack() as stack:
        show = _bar(stack)
        while True:
            logs = _logs(client, list(ends))
            left = [log for log in logs if not _is_clean(log, ends[log.partition])]
            state: list[object] = [(log.size, log.remote_size) for log in logs]
            if state != last:
                last, changed = state, time.monotonic()
            size = sum(log.size for log in logs)
            show(f"{size_text(total)} -> {size_text(size)}", 1 - len(left) / max(len(logs), 1))
            if time.monotonic() - changed >= settle_s:
                left = [log for log in left if log.first_dirty_offset is not None]
            if all(log.uncleanable_reason is not None for log in left):
                return left
            if time.monotonic() - began >= timeout_s:
                return left
            time.sleep(_INTERVAL_S)


def _logs(client: Client, names: list[TopicPartition]) -> list[LogDescription]:
    deadline = client.deadline("log directories")
    found = describe_log_dirs(client, sorted(client.brokers), names, deadline)
    return [log for directory in found for log in directory.logs if not log.is_future]


def _is_clean(log: LogDescription, end: int | None) -> bool:
    clean_to = log.first_dirty_offset
    if clean_to is None or end is None:
        return False
    remote_to = log.remote_first_dirty_offset
    return clean_to >= end and (remote_to is None or remote_to >= end)


def _bar(stack: ExitStack) -> Callable[[str, float], None]:
    """Return what shows the sizes, and how many of the logs are clean, on a terminal."""
    if not sys.stderr.isatty():
        tell("cleaning; Ctrl-C ends it and restores the settings")
        return lambda text, share: None
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("clean"))
    progress = stack.enter_context(Progress(*columns, console=Console(stderr=True), transient=True))
    task = progress.add_task("", total=1.0)
    return lambda text, share: progress.update(task, description=text, completed=share)
