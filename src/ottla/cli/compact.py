"""`ottla compact`: have the brokers clean a compacted topic now.

Kafka's protocol has no request for that. So this lowers three settings of the topic for a while,
which make every record due for cleaning, and watches the sizes of the topic's logs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated, Final

from cyclopts import Parameter

from ottla.cli.errors import FAILED, OK, complain
from ottla.cli.options import BootstrapServer, CommandConfig, Json, connect
from ottla.cli.output import JsonValue, counted, note, print_json
from ottla.client.cluster import Client
from ottla.client.configs import (
    ConfigChange,
    Resource,
    ResourceType,
    Setting,
    alter_configs,
    describe_configs,
)
from ottla.client.topics.log_sizes import log_sizes
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
            help="End when the sizes of the logs have not changed for so many seconds. For brokers"
            " of Apache Kafka choose more than their log.cleaner.backoff.ms, which is 15 s."
        ),
    ] = 5.0,
    timeout: Annotated[float, Parameter(help="Give up after so many seconds.")] = 600.0,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Have the brokers remove old records of a compacted topic now, active segments included.

    While it runs, it lowers min.cleanable.dirty.ratio, min.compaction.lag.ms and
    max.compaction.lag.ms of the topic. It shows how the logs shrink. Ctrl-C ends it and restores
    the settings.
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
        before = _sizes(client, names)
        with _eager(client, resource, settings):
            is_done = _watch(client, names, sum(before.values()), settle, timeout)
        after = _sizes(client, names)
    if json:
        rows: list[JsonValue] = [
            {"broker": b, "partition": p.partition, "before": size, "after": after.get((b, p), 0)}
            for (b, p), size in sorted(before.items())
        ]
        print_json({"topic": topic, "finished": is_done, "replicas": rows})
    else:
        total, left = sum(before.values()), sum(after.values())
        print(f"{topic}: {counted(len(before), 'replica')}, {_bytes(total)} -> {_bytes(left)}")
    if not is_done:
        complain(f"the logs of {topic} still changed after {timeout:g} s")
    return OK if is_done else FAILED


def _sizes(client: Client, names: list[TopicPartition]) -> dict[tuple[int, TopicPartition], int]:
    return log_sizes(client, names, client.deadline("log sizes"))


@contextmanager
def _eager(client: Client, resource: Resource, settings: list[Setting]) -> Iterator[None]:
    """Make everything due for cleaning, and restore the topic's settings in the end."""
    own = {s.name: s.value or "" for s in settings if s.name in EAGER and s.is_own}
    deadline = client.deadline("settings")
    alter_configs(client, resource, ConfigChange(EAGER, ()), deadline)
    try:
        yield
    finally:
        unset = [name for name in EAGER if name not in own]
        alter_configs(client, resource, ConfigChange(own, unset), client.deadline("settings"))


def _watch(
    client: Client, names: list[TopicPartition], total: int, settle_s: float, timeout_s: float
) -> bool:
    """Wait until the sizes stay the same; return False if that takes too long."""
    began = changed = time.monotonic()
    last = None
    with ExitStack() as stack:
        show = _bar(stack)
        while time.monotonic() - began < timeout_s:
            sizes = _sizes(client, names)
            if sizes != last:
                last, changed = sizes, time.monotonic()
            quiet_s = time.monotonic() - changed
            show(f"{_bytes(total)} -> {_bytes(sum(sizes.values()))}", min(quiet_s / settle_s, 1))
            if quiet_s >= settle_s:
                return True
            time.sleep(_INTERVAL_S)
    return False


def _bar(stack: ExitStack) -> Callable[[str, float], None]:
    """Return what shows the sizes, and how long they have stayed the same, on a terminal."""
    if not sys.stderr.isatty():
        note("cleaning; Ctrl-C ends it and restores the settings")
        return lambda text, share: None
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("unchanged"))
    progress = stack.enter_context(Progress(*columns, console=Console(stderr=True), transient=True))
    task = progress.add_task("", total=1.0)
    return lambda text, share: progress.update(task, description=text, completed=share)


def _bytes(size: int) -> str:
    return f"{size / 1_000_000:.1f} MB" if size >= 100_000 else f"{size / 1000:.1f} kB"
