"""Large messages are freed in steps, with everything in them."""

from __future__ import annotations

from weakref import ref

from ottla.model.steps import run_to_end
from ottla.wire.discard import ITEMS_A_STEP, discard_in_steps
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)


class Item:
    pass


def test_a_message_is_emptied_a_few_items_at_a_time() -> None:
    topics = [
        ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition() for _ in range(10)])
        for _ in range(ITEMS_A_STEP)
    ]
    partitions = topics[0].partitions
    request = ListOffsetsRequest(topics=topics)
    assert sum(1 for _ in discard_in_steps(request)) >= 10
    assert request.topics == []
    assert partitions == []


def test_everything_in_dicts_and_tuples_is_freed() -> None:
    items = [Item() for _ in range(3)]
    alive = [ref(item) for item in items]
    nested = {"t": {0: items[0]}, "u": [("name", [items[1]]), (1, 2)], "v": (items[2], {})}
    del items
    run_to_end(discard_in_steps(nested, [], None))
    assert nested == {}
    assert [each() for each in alive] == [None] * 3


def test_a_lazy_list_is_left_alone() -> None:
    made: list[int] = []
    run_to_end(discard_in_steps(LazyList(made.append, [1, 2])))
    assert made == []


def test_what_items_of_a_tuple_have_is_left_alone() -> None:
    in_use = [1]
    run_to_end(discard_in_steps([(("an image", in_use), [2])]))
    assert in_use == [1]
