"""Decisions on their way to the disk: groups, order, and what a failure takes along."""

from __future__ import annotations

from errno import EIO, ENOSPC
from functools import partial

import pytest

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import NoOpRecord
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps, run_to_end
from ottla.records.batch import scan
from ottla.wire.message import Message
from tests.support.controller import World, topic


@pytest.fixture
def world() -> World:
    return World().register()


def batches(world: World, offset: int) -> list[tuple[int, int]]:
    log = world.controller.log
    piece = log.read(offset, 1 << 20, log.log_end_offset, at_least_one=True)
    assert piece is not None
    data = piece.read()
    return [(batch.base_offset, batch.record_count) for batch in scan(data, 0, len(data))]


def test_decisions_of_a_wake_up_share_a_write_and_a_sync(world: World) -> None:
    before, writes = world.syncs, len(world.files.writes)
    outcomes = [world.submit(topic(number), NoOpRecord()) for number in range(50)]
    assert len(world.files.writes) == writes
    world.end_wake_up()
    assert sum(path.endswith(".log") for path, _ in world.files.writes[writes:]) == 1
    assert outcomes == [[]] * 50
    assert world.topics() == []
    world.background.run()
    assert outcomes == [[None]] * 50
    assert world.syncs == before + 1
    assert world.published == [[f"topic-{number}"] for number in range(50)]
    assert batches(world, 2) == [(2 + 2 * number, 2) for number in range(50)]
    assert world.controller.image.end_offset == world.controller.log.high_watermark == 102


def test_nothing_counts_before_it_is_on_disk(world: World) -> None:
    outcome = world.submit(topic(1))
    world.end_wake_up()
    log = world.controller.log
    assert (log.log_end_offset, log.high_watermark) == (3, 2)
    assert world.topics() == []
    assert list(world.controller.latest_image.topics) == ["topic-1"]
    assert world.controller.has_uncommitted
    world.background.run()
    assert outcome == [None]
    assert world.topics() == ["topic-1"]
    assert not world.controller.has_uncommitted
    assert world.controller.latest_image is world.controller.image


def test_what_comes_during_a_sync_is_the_next_group(world: World) -> None:
    before = world.syncs
    heard: list[int] = []

    def hear(number: int, error: ApiError | None) -> None:
        heard.append(number)

    for number in range(3):
        world.controller.submit([topic(number)], partial(hear, number))
        world.end_wake_up()
    assert world.controller.log.log_end_offset == 3  # the first alone was written
    world.background.run()
    assert heard == [0, 1, 2]
    assert world.syncs == before + 2
    assert world.topics() == ["topic-0", "topic-1", "topic-2"]


def test_who_asks_for_nothing_waits_for_those_before(world: World) -> None:
    assert world.submit() == [None]
    first, waiting = world.submit(topic(1)), world.submit()
    world.end_wake_up()
    late = world.submit()
    assert (first, waiting, late) == ([], [], [])
    world.background.run()
    assert (first, waiting, late) == ([None], [None], [None])


def test_a_callback_may_submit_more(world: World) -> None:
    outcome: list[ApiError | None] = []
    world.controller.submit(
        [topic(1)], lambda error: world.controller.submit([topic(2)], outcome.append)
    )
    world.finish()
    assert outcome == [None]
    assert world.published == [["topic-1"], ["topic-2"]]


@pytest.mark.parametrize("number", [EIO, ENOSPC])
def test_a_failed_sync_takes_everything_along(world: World, number: int) -> None:
    world.create(1)
    first, waiting = world.submit(topic(2)), world.submit()
    world.end_wake_up()
    later = world.submit(topic(3))
    world.files.fail("sync", OSError(number, "no sync"))
    world.background.run()
    for outcome in (first, waiting, later):
        (error,) = outcome
        assert error is not None
        assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "no sync" in (error.message or "")
    assert world.topics() == list(world.controller.latest_image.topics) == ["topic-1"]
    assert world.controller.log.log_end_offset == 3
    world.files.heal()
    world.create(2)
    assert world.controller.leader_epoch == 2  # an epoch never has two records of one offset
    assert world.controller.image.end_offset == 5
    world.start()
    assert world.topics() == ["topic-1", "topic-2"]
    assert world.controller.leader_epoch == 3


def test_a_failed_write_takes_everything_along(world: World) -> None:
    world.create(1)
    world.files.fill("*.log", room=10)
    first, second = world.submit(topic(2)), world.submit(topic(3))
    world.finish()
    assert [outcome[0].code for outcome in (first, second) if outcome[0]] == [
        ErrorCode.KAFKA_STORAGE_ERROR
    ] * 2
    world.files.heal()
    world.create(4)
    world.start()
    assert world.topics() == ["topic-1", "topic-4"]


def test_a_disk_that_stays_full_refuses_again_and_again(world: World) -> None:
    world.create(1)
    world.files.fail("sync", OSError(ENOSPC, "full"))
    for number in range(2, 5):
        outcome = world.submit(topic(number))
        world.finish()
        assert outcome[0] is not None
    world.files.heal()
    world.create(9)
    world.start()
    assert world.topics() == ["topic-1", "topic-9"]


def test_a_decision_that_fits_into_no_segment_is_refused() -> None:
    world = World(config=World().config.replace(segment_bytes=1000))
    (error,) = world.submit(*(topic(number) for number in range(100)))
    assert error is not None
    assert error.code == ErrorCode.POLICY_VIOLATION
    assert list(world.controller.latest_image.topics) == []
    world.create(1)


def test_groups_go_over_several_segments() -> None:
    world = World(config=World().config.replace(segment_bytes=600))
    before = world.published
    outcomes = [world.submit(topic(number)) for number in range(30)]
    world.finish()
    assert outcomes == [[None]] * 30
    assert len(before) == 30
    assert len(world.controller.log.segments) > 3
    world.start()
    assert len(world.topics()) == 30


# Decisions that take several wake-ups


@pytest.fixture
def running(world: World) -> list[Steps[None]]:
    """Return the steps that the controller has to run; the test runs them."""
    steps: list[Steps[None]] = []
    world.controller.run = steps.append
    return steps


def test_a_decision_waits_for_the_one_before(world: World, running: list[Steps[None]]) -> None:
    seen: list[list[str]] = []

    def decide(number: int, image: MetadataImage) -> Steps[list[Message]]:
        seen.append(list(image.topics))
        yield
        return [topic(number)]

    for number in range(3):
        world.controller.decide(partial(decide, number), lambda error: None)
    (steps,) = running
    next(steps)
    assert seen == [[]]
    run_to_end(steps)
    assert seen == [[], ["topic-0"], ["topic-0", "topic-1"]]


@pytest.mark.parametrize("has_records", [True, False])
def test_a_decision_fails_with_what_it_relies_on(
    world: World, running: list[Steps[None]], has_records: bool
) -> None:
    first, second = world.submit(topic(1)), world.submit(*([topic(2)] if has_records else []))
    (steps,) = running
    while not world.controller.has_uncommitted:
        next(steps)  # in the end the second decision has begun
    world.end_wake_up()
    world.files.fail("sync", OSError(EIO, "no sync"))
    world.background.run()
    run_to_end(steps)
    for (error,) in (first, second):
        assert error is not None
        assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert list(world.controller.latest_image.topics) == []


def test_no_group_is_written_while_one_is_published(
    world: World, running: list[Steps[None]]
) -> None:
    prepared: list[list[str]] = []

    def prepare(delta: MetadataDelta, image: MetadataImage) -> Steps[None]:
        prepared.append(delta.topics.created())
        yield

    world.controller.prepare = prepare
    outcomes = []
    for number in (1, 2):
        outcomes.append(world.submit(topic(number)))
        run_to_end(running.pop())
    world.finish()
    publication = running.pop()
    next(publication)
    assert prepared == [["topic-1"]]
    assert world.topics() == []
    outcomes.append(world.submit(topic(3)))
    run_to_end(running.pop())
    world.finish()
    assert outcomes == [[], [], []]
    run_to_end(publication)
    assert outcomes == [[None], [None], []]
    world.finish()
    run_to_end(running.pop())
    assert outcomes == [[None], [None], [None]]
    assert world.topics() == ["topic-1", "topic-2", "topic-3"]


def test_control_records_between_decisions_leave_those_in_force(world: World) -> None:
    """The leader of a quorum follows its own control records, such as a new set of voters."""
    first = world.submit(topic(1))
    world.controller.follow(no_records(), 3, 1, 100)
    assert list(world.controller.latest_image.topics) == ["topic-1"]
    second = world.submit(topic(2))
    world.end_wake_up()
    world.background.run()
    assert first == second == [None]
    assert world.topics() == list(world.controller.latest_image.topics) == ["topic-1", "topic-2"]
    assert world.controller.latest_image is world.controller.image


def no_records() -> Steps[list[Message]]:
    yield
    return []
