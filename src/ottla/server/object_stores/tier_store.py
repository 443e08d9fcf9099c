"""Opens the object store of the remote tier, with threads for its requests.

It is imported only by a broker with a tier: see `remote.log.storage.url`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, TypeVar

from ottla.ports import ObjectStore, ObjectStoreError
from ottla.server.background import do_jobs, job_of
from ottla.server.errors import StartupError
from ottla.server.object_stores.background_store import BackgroundStore

T = TypeVar("T")

_MOST_THREADS: Final = 12
"""Enough for remote.log.reader.threads=10 and the uploads beside them."""


class StoreThreads:
    """The Background of a store: requests that wait for the network, several at a time.

    Threads are started as they are needed. `stop` does not wait for requests under way: a store
    that does not answer must not hold up the end of a broker.
    """

    def __init__(self, wake_loop: Callable[[], None]) -> None:
        self._wake_loop = wake_loop
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._finished: deque[Callable[[], None]] = deque()
        self._threads = 0
        self._under_way = 0
        """Requests that were submitted and not delivered yet; only the loop changes it."""
        self._is_stopped = False

    def submit(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        """Run `work` in a thread, then `done` with its result, or its OSError, on the loop."""
        if self._is_stopped:
            return
        self._under_way += 1
        if self._threads < min(self._under_way, _MOST_THREADS):
            self._threads += 1
            name = f"ottla-tier-{self._threads}"
            threading.Thread(target=self._run, name=name, daemon=True).start()
        self._work.put(job_of(work, done, self._finished))

    def _run(self) -> None:
        do_jobs(self._work, self._wake_loop)

    def deliver(self) -> list[Callable[..., object]]:
        """Hand finished results over; called on the loop. Return what took them."""
        takers: list[Callable[..., object]] = []
        while self._finished and not self._is_stopped:
            taker = self._finished.popleft()
            self._under_way -= 1
            takers.append(taker)
            taker()
        return takers

    def stop(self) -> None:
        """Take no more work, and drop the results of what is under way."""
        self._is_stopped = True
        for _ in range(self._threads):
            self._work.put(None)


def open_tier_store(url: str | None, threads: StoreThreads) -> ObjectStore:
    """Return the store that a URL names. Raise StartupError if it cannot be opened."""
    if not url:
        raise StartupError(
            "remote.log.storage.system.enable=true needs remote.log.storage.url, such as"
            " file:./cold or s3://bucket/prefix"
        )
    try:
        return BackgroundStore(url, threads)
    except ImportError as error:
        raise StartupError(
            f"remote.log.storage.url needs the extra tier: pip install 'ottla[tier]' ({error})"
        ) from None
    except (ValueError, ObjectStoreError) as error:
        raise StartupError(f"remote.log.storage.url: {error}") from None
