"""Opening the store of the remote tier, and the threads of its requests."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ottla.ports import ObjectStoreError
from ottla.server.broker_process import Broker
from ottla.server.errors import StartupError
from ottla.server.object_stores.tier_store import StoreThreads, open_tier_store


def test_an_unknown_store_is_refused() -> None:
    threads = StoreThreads(lambda: None)
    with pytest.raises(StartupError, match=r"needs remote\.log\.storage\.url"):
        open_tier_store(None, threads)
    with pytest.raises(StartupError, match=r"remote\.log\.storage\.url: .*ftp"):
        open_tier_store("ftp://somewhere", threads)


def test_a_broker_with_a_tier_needs_to_know_where_it_is() -> None:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "remote.log.storage.system.enable": "true"}
    broker = Broker(settings, memory=True, report=print)
    with pytest.raises(StartupError, match=r"needs remote\.log\.storage\.url"):
        broker.open()


def test_slow_requests_do_not_hold_up_others(tmp_path: Path) -> None:
    woken = threading.Semaphore(0)
    threads = StoreThreads(woken.release)
    released = threading.Event()
    results: list[object] = []
    threads.submit(released.wait, results.append)
    store = open_tier_store(f"file:{tmp_path}", threads)

    def done(result: ObjectStoreError | None) -> None:
        results.append(result)

    store.put("a/b", b"content", done)
    assert woken.acquire(timeout=60)
    threads.deliver()
    assert results == [None]
    released.set()
    assert woken.acquire(timeout=60)
    threads.deliver()
    assert results == [None, True]
    threads.stop()


def test_results_are_dropped_after_the_end() -> None:
    woken = threading.Semaphore(0)
    threads = StoreThreads(woken.release)
    results: list[object] = []
    threads.submit(lambda: 1, results.append)
    assert woken.acquire(timeout=60)
    threads.stop()
    assert threads.deliver() == []
    threads.submit(lambda: 2, results.append)
    assert results == []
