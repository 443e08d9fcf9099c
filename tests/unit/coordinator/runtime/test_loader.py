"""Loading a shard from its log: an index that is rebuilt meanwhile, and many records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from ottla.config.topic import LogConfig
from ottla.coordinator.runtime.loader import Loader, Progress
from ottla.coordinator.runtime.shard import Shard
from ottla.log.segment import index_jobs
from ottla.records.record import build_batch
from ottla.sim.background import DeferredBackground
from tests.support.log import NOW, append_all, batch_of, names_in, new_log, reopen


def test_the_loader_waits_for_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_jobs, "AT_ONCE_BYTES", 0)
    log = new_log(LogConfig(segment_bytes=300))
    for _ in range(9):
        append_all(log, batch_of(1))
    log.close()
    log.resources.files.unlink(log.path(names_in(log, ".index")[0]))
    again = reopen(log, is_clean=True)
    again.resources.background = background = DeferredBackground()
    again.resources.index_jobs.is_serving = True
    seen: list[object] = []
    shard = SimpleNamespace(decode=lambda key, value: seen.append(value), LATEST_ONLY=())
    loader = Loader(again, cast(Shard, shard))
    assert loader.step(_nothing) is Progress.MORE
    assert not seen
    background.finish()
    while loader.step(_nothing) is not Progress.DONE:
        pass
    assert len(seen) == 9


def _nothing() -> None:
    """Ignore that there is more to do: the test asks again anyway."""


def test_what_comes_before_a_transaction_is_replayed_in_steps() -> None:
    log = new_log(LogConfig())
    for first in range(0, 3000, 100):
        keys = [b"k%d" % number for number in range(first, first + 100)]
        append_all(log, build_batch([(key, b"v", NOW, ()) for key in keys]))
    transactional = build_batch(
        [(b"k", b"v", NOW, ())],
        base_offset=3000,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        leader_epoch=0,
        is_transactional=True,
    )
    log.append_as_follower(transactional, memoryview(transactional), 0, len(transactional), NOW)
    log.write_queued()
    replayed: list[object] = []
    shard = SimpleNamespace(
        decode=lambda key, value: (key, value),
        LATEST_ONLY=(b"k",),
        replay=lambda key, value: replayed.append(key),
        replay_transactional=lambda key, value, producer_id, offset: replayed.append(producer_id),
    )
    loader = Loader(log, cast(Shard, shard))
    most = before = 0
    while loader.step(_nothing) is not Progress.DONE:
        most, before = max(most, len(replayed) - before), len(replayed)

    assert sorted(map(str, replayed[:-1])) == sorted(str(b"k%d" % each) for each in range(3000))
    assert replayed[-1] == 7
    assert most <= 1000
