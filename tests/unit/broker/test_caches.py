"""Every cache of a broker is bounded in bytes, whatever clients send.

The first test finds caches that this file does not know. A new one is added to `BOUNDED`, with a
test here that fills it with keys as long as a client can make them.
"""

from __future__ import annotations

import ast
import re
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

import ottla
from ottla.broker.metadata_cache import MOST_BYTES as MOST_METADATA_BYTES
from ottla.broker.metadata_cache import MetadataCache
from ottla.config.topic import LogConfig
from ottla.coordinator.groups import offset_commit
from ottla.coordinator.runtime.partitioner import partition_of
from ottla.model.errors import ApiError, ErrorCode
from ottla.replication import fetch_session
from ottla.replication.fetch_partitions import ENTRY_BYTES, Fetcher
from ottla.replication.fetch_session import FetchSessions
from ottla.testing.fakes import FakeRandom
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.support.broker import Broker

PACKAGES = (
    "broker",
    "config",
    "controller",
    "coordinator",
    "log",
    "metadata",
    "model",
    "network",
    "raft",
    "records",
    "replication",
    "server",
    "wire",
)
BOUNDED = {
    "ottla.config.broker.broker_settings": "one entry, the settings that there are",
    "ottla.config.listeners._parse_protocol_map": "one entry, a setting of this broker",
    "ottla.coordinator.groups.offset_commit._cached_key": "short group ids and names only",
    "ottla.coordinator.runtime.partitioner._cached_partition_of": "short ids only",
    "ottla.metadata.topics_delta._shared": "lists of brokers, as long as there are brokers",
    "ottla.network.buffers._resize": "one entry",
    "ottla.server.object_stores.directory_store._nothing": "one entry",
    "ottla.server.os_file._fallocate": "one entry",
}
LONG = 1_000_000
MOST_BYTES = 16 * LONG


def caches_of(path: Path) -> Iterator[str]:
    """Return the functions of a file that have a cache of functools."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            made_with, name = ast.unparse(ast.List(node.decorator_list)), node.name
        elif isinstance(node, ast.Assign):
            made_with, name = ast.unparse(node.value), ast.unparse(node.targets[0])
        else:
            continue
        made_with = re.sub(r"'[^']*'", "''", made_with)  # a setting may have the word in its name
        if re.search(r"\b(lru_cache|cache)\b", made_with) and "(" not in name:
            yield name


@contextmanager
def memory_that_stays(most_bytes: int) -> Iterator[None]:
    """Fail if more memory than this is taken and kept."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before <= most_bytes


def test_every_cache_of_a_function_is_known_here() -> None:
    root = Path(ottla.__file__).parent
    found = {
        ".".join((*path.relative_to(root.parent).with_suffix("").parts, name))
        for package in PACKAGES
        for path in (root / package).rglob("*.py")
        if not path.is_relative_to(root / "coordinator/groups/consumer")
        for name in caches_of(path)
    }
    assert found == set(BOUNDED)


def long_keys() -> Iterator[str]:
    for number in range(100):
        yield f"{number}" + "x" * LONG


FILLED: dict[str, Callable[[str], object]] = {
    "the partition of a group": lambda key: partition_of(key, 50),
    "the key of a group's commit": lambda key: offset_commit._key(key, "t", 0),
    "the key of a topic's commit": lambda key: offset_commit._key("g", key, 0),
}


@pytest.mark.parametrize("name", FILLED)
def test_long_keys_are_not_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.coordinator.runtime.partitioner.java_hash", hash)  # as slow as long
    with memory_that_stays(MOST_BYTES):
        for key in long_keys():
            FILLED[name](key)


def test_the_longest_keys_that_are_kept_take_little() -> None:
    longest = "\U0001f600" * 250
    kept = 2 * 4096 * (sys.getsizeof(longest) + 500)
    assert kept < MOST_BYTES


def test_append_rules_of_long_settings_are_not_kept() -> None:
    resources = Broker().node.store.resources
    with memory_that_stays(MOST_BYTES):
        for key in long_keys():
            config = LogConfig(leader_replication_throttled_replicas=(key,))
            resources.append_rules(config)


def test_metadata_replies() -> None:
    cache = MetadataCache()
    with memory_that_stays(MOST_METADATA_BYTES + MOST_BYTES):
        for key in long_keys():
            cache.put((12, "PLAINTEXT", key.encode()), bytes(10))
        for number in range(100):
            cache.put((12, "PLAINTEXT", b"%d" % number), bytes(LONG))


def test_the_name_of_a_clients_software() -> None:
    broker = Broker()
    clients = [broker.connect() for _ in range(3)]
    for client in clients:
        client.ask(
            ApiVersionsRequest(
                client_software_name="a" * 10_000, client_software_version="1" * 10_000
            )
        )
        client.kept.clear()
    assert sum(len(client.connection.client_software) for client in clients) < 1000


@pytest.mark.interpreted
def test_fetch_sessions_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session, "MOST_BYTES", 10 * ENTRY_BYTES)
    numbers = count(1)
    sessions = FetchSessions(1000, FakeRandom(lambda limit: next(numbers)))
    opened = []
    for _ in range(20):
        fetcher = Fetcher()
        fetcher.follow(b"k", 0)
        fetcher.follow(b"k", 1)
        session = sessions.open(fetcher, privileged=False, uses_ids=False, now_ms=0)
        if session is not None:
            opened.append(session)
    assert len(opened) == len(sessions) == 4
    opened[0].fetcher.follow(b"x" * 10 * ENTRY_BYTES, 0)
    with pytest.raises(ApiError) as refused:
        sessions.count(opened[0])
    assert refused.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    opened[1].fetcher.forget(b"k", 0)
    sessions.count(opened[1])
    assert sessions.held_bytes == 5 * (ENTRY_BYTES + 1)
    for session in opened:
        sessions.close(session.session_id)
    assert (len(sessions), sessions.held_bytes) == (0, 0)


@pytest.mark.interpreted
def test_a_fetch_of_long_names_gets_no_session_when_the_cache_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_session, "MOST_BYTES", 5 * LONG)
    client = Broker().connect()
    sessions = []
    for number in range(8):
        topic = FetchTopic(
            topic=f"{number}" + "x" * LONG,
            partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)],
        )
        request = FetchRequest(
            max_wait=0, min_bytes=1, max_bytes=1, session_id=0, session_epoch=0, topics=[topic]
        )
        response = client.ask(request, 12)
        assert response.error_code == 0
        sessions.append(bool(response.session_id))
    assert sessions == [True] * 4 + [False] * 4
