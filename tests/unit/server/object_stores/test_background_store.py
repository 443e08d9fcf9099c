"""The contract of object stores: in memory, in a directory, on S3, and the simulator's."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.memory_files import MemoryFiles
from ottla.ports import (
    FileRange,
    Files,
    ObjectNotFound,
    ObjectStore,
    ObjectStoreError,
    ObjectStoreUnavailable,
    StoredObject,
)
from ottla.server.background import BackgroundThread
from ottla.server.object_stores.background_store import BackgroundStore
from ottla.server.os_files import OsFiles
from ottla.sim.background import DeferredBackground
from ottla.sim.object_store import SimObjectStore, StoreFaults
from tests.harness.s3_server import ENVIRONMENT, create_bucket, s3_server

TIMEOUT_S = 30.0


class Asked:
    """A store that is asked one thing at a time, and waited for."""

    def __init__(self, store: ObjectStore, settle: Callable[[], None]) -> None:
        self.store = store
        self._settle = settle

    def ask(self, method: str, *arguments: object) -> Any:
        """Return the result, or raise the error."""
        results: list[Any] = []
        getattr(self.store, method)(*arguments, results.append)
        assert results == []  # never at once
        self._settle()
        (result,) = results
        if isinstance(result, OSError):
            raise result
        return result

    def everything(self, prefix: str, limit: int) -> list[StoredObject]:
        """Return a whole listing, page by page."""
        found: list[StoredObject] = []
        while page := self.ask("list", prefix, found[-1].key if found else "", limit):
            assert len(page) <= limit
            found += page
        return found


@pytest.fixture(scope="module")
def s3_address() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture(params=["memory", "directory", "simulated", "s3"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Asked]:
    if request.param == "simulated":
        deferred = DeferredBackground()
        faults = StoreFaults(slow=0.3, short=0.5)
        yield Asked(SimObjectStore(deferred, Random(1), faults), deferred.finish)
        return
    woken = threading.Semaphore(0)
    background = BackgroundThread(woken.release)

    def settle() -> None:
        assert woken.acquire(timeout=TIMEOUT_S)
        background.deliver()

    url = {"memory": "memory:", "directory": f"file:{tmp_path}/store"}.get(request.param)
    if url is None:
        address = request.getfixturevalue("s3_address")
        url = f"s3://tier/{tmp_path.name}/inner"
        create_bucket(address, "tier")
        for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": address}.items():
            monkeypatch.setenv(name, value)
    yield Asked(BackgroundStore(url, background), settle)
    background.stop()


def test_what_was_put_can_be_read_in_ranges(store: Asked) -> None:
    assert store.ask("put", "a/b", b"0123456789") is None
    assert store.ask("get", "a/b", 0, 10) == b"0123456789"
    assert store.ask("get", "a/b", 3, 4) == b"3456"
    assert store.ask("get", "a/b", 8, 100) == b"89"
    assert store.ask("size", "a/b") == 10


def test_files_of_objects_that_are_not_there_are_errors(store: Asked) -> None:
    with pytest.raises(ObjectNotFound):
        store.ask("get_file", "a", 0, 5)


def test_an_object_is_replaced_as_a_whole(store: Asked) -> None:
    store.ask("put", "a", b"a long first one")
    store.ask("put", "a", memoryview(b"short"))
    assert store.ask("size", "a") == 5
    assert store.ask("get", "a", 0, 100) == b"short"


def test_an_empty_object(store: Asked) -> None:
    store.ask("put", "a", b"")
    assert store.ask("size", "a") == 0


def test_reading_at_the_end_and_after_it(store: Asked) -> None:
    store.ask("put", "a", b"0123")
    store.ask("put", "empty", b"")
    assert store.ask("get", "a", 3, 5) == b"3"
    assert store.ask("get", "a", 4, 5) == b""
    assert store.ask("get", "a", 400, 5) == b""
    assert store.ask("get", "a", 0, 0) == b""
    assert store.ask("get", "empty", 0, 5) == b""
    assert store.ask("get_file", "a", 3, 5).length == 1
    assert store.ask("get_file", "a", 400, 5).length == 0


@pytest.mark.parametrize("length", [1000, 12 * 2**20])
@pytest.mark.parametrize("files", [MemoryFiles(), OsFiles()], ids=["in memory", "on disk"])
def test_a_part_of_a_file(store: Asked, length: int, files: Files, tmp_path: Path) -> None:
    content = os.urandom(2**20) * 12 + os.urandom(5000)
    files.make_dirs(str(tmp_path))
    file = files.open(f"{tmp_path}/f", create=True, writable=True)
    file.pwritev([content], 0)
    store.ask("put", "segments/f.log", FileRange(file, 100, length))
    assert store.ask("get", "segments/f.log", 0, 2 * length) == content[100 : 100 + length]
    assert store.ask("get", "segments/f.log", length - 10, 20) == content[90 + length :][:10]
    cached = store.ask("get_file", "segments/f.log", 10, 150_000)
    found = cached.file.pread(cached.length, cached.position)
    assert found == content[110 : min(150_110, 100 + length)]


def test_what_is_not_there(store: Asked) -> None:
    for question in (("get", "a", 0, 1), ("size", "a")):
        with pytest.raises(ObjectNotFound):
            store.ask(*question)
    assert store.ask("delete", "a") is None


def test_deleting(store: Asked) -> None:
    store.ask("put", "a", b"1")
    store.ask("put", "b", b"2")
    store.ask("delete", "a")
    with pytest.raises(ObjectNotFound):
        store.ask("size", "a")
    assert store.ask("size", "b") == 1


@pytest.mark.parametrize("limit", [1, 2, 7, 1000])
def test_listings_are_sorted_and_come_in_pages(store: Asked, limit: int) -> None:
    keys = ["t/0/9", "t/0/10", "t/1/a", "t/0/1", "t1/0", "u"]
    for size, key in enumerate(keys):
        store.ask("put", key, bytes(size))
    sizes = {key: size for size, key in enumerate(keys)}
    for prefix in ("", "t/", "t/0/", "none/"):
        expected = [StoredObject(key, sizes[key]) for key in sorted(keys) if key.startswith(prefix)]
        assert store.everything(prefix, limit) == expected


def test_one_request_after_the_other_finds_what_it_needs(store: Asked) -> None:
    for number in range(5):
        store.ask("put", f"n/{number}", b"x" * number)
    for entry in store.everything("n/", 2):
        store.ask("delete", entry.key)
    assert store.everything("n/", 2) == []


def test_a_file_that_is_too_short_is_an_error(store: Asked, tmp_path: Path) -> None:
    for files in (MemoryFiles(), OsFiles()):
        files.make_dirs(str(tmp_path))
        file = files.open(f"{tmp_path}/short", create=True, writable=True)
        file.pwritev([b"01234"], 0)
        if isinstance(store.store, BackgroundStore):
            with pytest.raises(ObjectStoreError, match="ends 5 bytes too early"):
                store.ask("put", "a", FileRange(file, 0, 10))
            with pytest.raises(ObjectNotFound):
                store.ask("size", "a")


def test_the_simulated_store_fails_as_real_ones_do() -> None:
    background = DeferredBackground()
    store = SimObjectStore(background, Random(7), StoreFaults(unavailable=0.3, lost=0.3))
    asked = Asked(store, background.finish)
    kept = undone = told = 0
    for number in range(100):
        key = str(number)
        try:
            asked.ask("put", key, b"1")
            told += 1
            assert key in store.objects
        except ObjectStoreUnavailable:
            kept += key in store.objects
            undone += key not in store.objects
    assert min(kept, undone, told) > 10


def test_slow_answers_of_the_simulated_store_overtake_each_other() -> None:
    background = DeferredBackground()
    store = SimObjectStore(background, Random(3), StoreFaults(slow=0.5))
    order: list[int] = []

    def note(number: int, result: object) -> None:
        order.append(number)

    for number in range(20):
        store.put(str(number), b"", partial(note, number))
    background.finish()
    assert sorted(order) == list(range(20))
    assert order != sorted(order)
