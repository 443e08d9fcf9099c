"""`ottla erase`: delete a key of a compacted topic, and show that no value of it is left.

It writes a tombstone to each partition in which a replica has a value of the key, has the brokers
clean them at once (their active segments end for that), and reads every replica again. The objects
of a topic in the remote tier are read as well, also those of segments that were replaced: it waits
until they are deleted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Final

from cyclopts import Parameter

from ottla.cli.compact import made_eager
from ottla.cli.erase.replica_search import ReplicaFinding, search
from ottla.cli.erase.report import print_findings, print_findings_as_json
from ottla.cli.erase.tier_search import search_tier
from ottla.cli.errors import FAILED, OK, DataError, UsageError, complain, tell
from ottla.cli.options import BootstrapServer, CommandConfig, Json, connect
from ottla.cli.output import counted
from ottla.cli.tier.source import TierSource, tier_errors, tier_of
from ottla.client.cluster import Client
from ottla.client.configs import Resource, ResourceType, Setting, describe_configs
from ottla.client.consumer.consumer import start_offsets
from ottla.client.producer.producer import ACKS_ALL, Producer
from ottla.client.topics.log_sizes import LogDescription, describe_log_dirs
from ottla.client.topics.offsets import LATEST_TIMESTAMP
from ottla.client.topics.topics import (
    REMOTE_STORAGE_ENABLE,
    PartitionDescription,
    describe_topics,
)
from ottla.model.ids import TopicPartition

_INTERVAL_S: Final = 0.25
_OBJECTS_INTERVAL_S: Final = 1.0


def erase(
    *,
    topic: Annotated[str, Parameter(help="A topic with cleanup.policy=compact.")],
    key: Annotated[str, Parameter(help="The key, as text.", allow_leading_hyphen=True)],
    hex: Annotated[
        bool, Parameter(help="--key is hexadecimal, for keys that are no text.", show_default=False)
    ] = False,
    timeout: Annotated[float, Parameter(help="Give up after this many seconds.")] = 600.0,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Delete a key of a compacted topic, and show that no replica has a value of it any more.

    It reads the logs of all replicas, writes a tombstone where one has a value, has the brokers
    clean these partitions at once, and reads them again. Like `ottla compact` it lowers settings of
    the topic meanwhile. If the topic is in the remote tier, it also reads the objects in the store,
    and waits until the old ones are deleted (file.delete.delay.ms, a minute). The exit code is 0
    only if everything was read and has no value.
    """
    wanted = _key(key, hex)
    with connect(bootstrap_server, command_config) as client:
        resource = Resource(ResourceType.TOPIC, topic)
        settings = describe_configs(client, [resource], client.deadline("settings"))[resource]
        _check_topic(topic, settings)
        (described,) = describe_topics(client, [topic])
        tier = None
        if any(each.name == REMOTE_STORAGE_ENABLE and each.value == "true" for each in settings):
            with tier_errors():
                tier = tier_of(client, described)
        found = _search(client, topic, described.partitions, wanted, tier)
        targets = _with_values(described.partitions, found)
        others = _unknown_elsewhere(found, targets)
        written: dict[int, int] = {}
        is_clean = True
        if targets:
            written = _write_tombstones(client, topic, targets, wanted)
            deadline = time.monotonic() + timeout
            with made_eager(client, resource, settings):
                is_clean = _await_cleans(client, topic, targets, written, deadline)
                found = _search(client, topic, targets, wanted, tier)
                while _has_remote_values(found) and time.monotonic() < deadline:
                    time.sleep(_OBJECTS_INTERVAL_S)
                    is_clean = _await_cleans(client, topic, targets, written, deadline)
                    found = _search(client, topic, targets, wanted, tier)
            found = sorted(others + found, key=lambda each: each.partition)
    is_erased = is_clean and not any(each.values or each.error for each in found)
    if json:
        print_findings_as_json(topic, written, found, is_erased)
    else:
        print_findings(found)
        if not written:
            print(f"{topic}: no replica has a value of this key; nothing was written")
        elif is_erased:
            where = counted(len(targets), "partition")
            print(f"{topic}: the key is deleted in {where}; no value is left")
    if not is_clean:
        complain(f"{topic} was not cleaned within {timeout:g} s")
    for each in found:
        if each.error is not None:
            complain(f"{topic}-{each.partition} on {each.place} is not known: {each.error}")
        if each.values:
            complain(
                f"{topic}-{each.partition} on {each.place} still has"
                f" {counted(len(each.values), 'value')} of the key, from offset {each.values[0]} on"
            )
    return OK if is_erased else FAILED


def _key(text: str, is_hex: bool) -> bytes:
    if not is_hex:
        return text.encode("utf-8", "surrogateescape")
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise UsageError(f"--key {text!r} is not hexadecimal") from None


def _check_topic(topic: str, settings: Sequence[Setting]) -> None:
    values = {each.name: each.value or "" for each in settings}
    policy = values.get("cleanup.policy", "")
    if "compact" not in policy:
        raise DataError(
            f"{topic} has cleanup.policy={policy}: only compacted topics have deletions by key"
        )


def _search(
    client: Client,
    topic: str,
    partitions: Sequence[PartitionDescription],
    key: bytes,
    tier: TierSource | None,
) -> list[ReplicaFinding]:
    """Look for the key in the replicas, then in the remote tier: records move this way."""
    tell(f"reading {counted(sum(len(p.replicas) for p in partitions), 'replica')}")
    found = [
        finding for partition in partitions for finding in search(client, topic, partition, key)
    ]
    if tier is not None:
        tell("reading the remote tier")
        found += [search_tier(tier, partition.partition, key) for partition in partitions]
    return found


def _has_remote_values(found: Sequence[ReplicaFinding]) -> bool:
    return any(each.broker is None and each.values for each in found)


def _with_values(
    partitions: Sequence[PartitionDescription], found: Sequence[ReplicaFinding]
) -> list[PartitionDescription]:
    indexes = {each.partition for each in found if each.values}
    return [each for each in partitions if each.partition in indexes]


def _unknown_elsewhere(
    found: Sequence[ReplicaFinding], targets: Sequence[PartitionDescription]
) -> list[ReplicaFinding]:
    """Return what is not known of partitions that get no tombstone: a value may be there."""
    indexes = {each.partition for each in targets}
    return [each for each in found if each.error is not None and each.partition not in indexes]


def _write_tombstones(
    client: Client, topic: str, targets: Sequence[PartitionDescription], key: bytes
) -> dict[int, int]:
    """Write a tombstone to each partition; return the last offset of each after that."""
    producer = Producer(client, topic, acks=ACKS_ALL)
    for each in targets:
        producer.send(key, None, int(time.time() * 1000), (), each.partition)
    producer.flush()
    indexes = [each.partition for each in targets]
    ends = start_offsets(client, topic, indexes, LATEST_TIMESTAMP, client.deadline("offsets"))
    return {index: end - 1 for index, end in ends.items()}


def _await_cleans(
    client: Client,
    topic: str,
    targets: Sequence[PartitionDescription],
    written: dict[int, int],
    deadline: float,
) -> bool:
    """Wait until each replica says that it is clean beyond the tombstone, and its remote part.

    Return False if not all of them said so in time.
    """
    names = [TopicPartition(topic, each.partition) for each in targets]
    expected = {(broker, each.partition) for each in targets for broker in each.replicas}
    tell("cleaning; Ctrl-C ends it and restores the settings")
    while time.monotonic() < deadline:
        brokers = [broker for broker in client.brokers if any(b == broker for b, _ in expected)]
        found = describe_log_dirs(client, brokers, names, client.deadline("log directories"))
        logs = [log for directory in found for log in directory.logs if not log.is_future]
        _check_cleanable(logs)
        clean = {
            (log.broker, log.partition.partition)
            for log in logs
            if _clean_to(log) > written[log.partition.partition]
        }
        if {each for each in expected if each[0] in brokers} <= clean:
            return True
        time.sleep(_INTERVAL_S)
    return False


def _clean_to(log: LogDescription) -> int:
    """Return up to where both parts of a log are clean."""
    local, remote = log.first_dirty_offset or 0, log.remote_first_dirty_offset
    return local if remote is None else min(local, remote)


def _check_cleanable(logs: Sequence[LogDescription]) -> None:
    for log in logs:
        if log.uncleanable_reason is not None:
            raise DataError(
                f"broker {log.broker} does not clean {log.partition}: {log.uncleanable_reason}"
            )
        if log.first_dirty_offset is None:
            raise DataError(
                f"broker {log.broker} does not report how far {log.partition} is clean: the"
                " tombstone is written; a broker of Apache Kafka removes the values when it cleans"
            )
