"""The session cache: who gets a slot, who loses it, what a wrong request is told."""

from __future__ import annotations

from itertools import count

import pytest

from ottla.model.errors import ApiError, ErrorCode
from ottla.replication.fetch_partitions import Fetcher
from ottla.replication.fetch_session import EVICTION_MS, FetchSession, FetchSessions, next_epoch
from ottla.testing.fakes import FakeRandom


def counting() -> FakeRandom:
    """Return randomness whose numbers count up."""
    numbers = count(1)
    return FakeRandom(lambda limit: next(numbers))


def fetcher(partitions: int) -> Fetcher:
    result = Fetcher()
    for index in range(partitions):
        result.follow(b"t", index)
    return result


def opened(
    cache: FetchSessions, partitions: int, now_ms: float, **kind: bool
) -> FetchSession | None:
    options = {"privileged": False, "uses_ids": False} | kind
    return cache.open(fetcher(partitions), now_ms=now_ms, **options)


def test_an_incremental_request_continues_its_session() -> None:
    cache = FetchSessions(2, counting())
    session = opened(cache, 1, 0)
    assert session is not None
    assert cache.use(session.session_id, 1, uses_ids=False, now_ms=1) is session


@pytest.mark.parametrize(
    ("session_id", "epoch", "uses_ids", "code"),
    [
        (77, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (2, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (2, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_request_that_fits_no_session_is_told_why(
    session_id: int, epoch: int, uses_ids: bool, code: ErrorCode
) -> None:
    cache = FetchSessions(2, counting())
    assert opened(cache, 1, 0) is not None
    with pytest.raises(ApiError) as caught:
        cache.use(session_id, epoch, uses_ids=uses_ids, now_ms=0)
    assert caught.value.code == code


def test_a_full_cache_refuses_young_equals() -> None:
    cache = FetchSessions(2, counting())
    assert opened(cache, 5, 0)
    assert opened(cache, 5, 0)
    assert opened(cache, 500, 1000) is None


def test_a_stale_session_makes_room_for_any() -> None:
    cache = FetchSessions(1, counting())
    stale = opened(cache, 100, 0)
    assert stale is not None
    assert opened(cache, 1, EVICTION_MS + 1) is not None
    assert not stale.fetcher.entries
    assert len(cache) == 1


def test_an_old_session_in_use_yields_only_to_a_larger_one() -> None:
    cache = FetchSessions(1, counting())
    session = opened(cache, 10, 0)
    assert session is not None
    now_ms = EVICTION_MS + 10
    cache.use(session.session_id, 1, uses_ids=False, now_ms=now_ms)
    assert opened(cache, 9, now_ms) is None
    assert opened(cache, 11, now_ms) is not None


def test_a_follower_takes_the_slot_of_a_consumer_at_any_age() -> None:
    cache = FetchSessions(1, counting())
    assert opened(cache, 100, 0)
    follower = opened(cache, 1, 1, privileged=True)
    assert follower is not None
    assert opened(cache, 100, 2) is None


def test_no_slots_means_no_sessions() -> None:
    assert opened(FetchSessions(0, counting()), 1, 0) is None


def test_epochs_skip_the_reserved_ones() -> None:
    assert next_epoch(0) == 1
    assert next_epoch(2**31 - 1) == 1


@pytest.mark.parametrize(("leader_epoch", "offset"), [(3, 5), (3, 4), (4, 6)])
def test_a_follower_that_asks_again_is_told_the_high_watermark_again(
    leader_epoch: int, offset: int
) -> None:
    entry = Fetcher(is_follower=True).follow(b"t", 0)
    entry.move(3, 4, 0, 1000)
    entry.sent_high_watermark = 5
    entry.move(3, 5, 0, 1000)
    assert entry.sent_high_watermark == 5
    entry.move(leader_epoch, offset, 0, 1000)
    assert entry.sent_high_watermark < 0
