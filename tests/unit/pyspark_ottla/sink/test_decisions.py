"""Decisions as text: what is written is read again, in one offset or in several."""

from __future__ import annotations

import pytest

from pyspark_ottla.sink.decisions import (
    METADATA_CHARACTERS,
    Decision,
    DecisionError,
    TaskWrite,
    _parse,
    _texts,
)


def decision(tasks: int) -> Decision:
    return Decision(7, tuple(TaskWrite(n, n % 3, 4_000_000 + n, n % 100) for n in range(tasks)))


@pytest.mark.parametrize("tasks", [1, 2, 100, 1_000, 5_000])
def test_a_decision_is_read_as_it_was_written(tasks: int) -> None:
    texts = _texts(decision(tasks))
    assert all(len(text) < METADATA_CHARACTERS + 96 for text in texts)
    assert (len(texts) > 1) == (tasks >= 1_000)
    assert set(_parse(7, texts[::-1]).writes) == set(decision(tasks).writes)


def test_tasks_that_must_write_again() -> None:
    redo = Decision(7, redo=frozenset({3, 11}))
    assert _parse(7, _texts(redo)) == redo
    assert redo.is_left_to(7, 11)
    assert not redo.is_left_to(7, 4)
    assert not redo.is_left_to(6, 11)


def test_a_decision_leaves_later_batches_to_their_tasks() -> None:
    assert decision(2).is_left_to(8, 0)
    assert not decision(2).is_left_to(7, 0)


def test_a_part_that_is_missing_is_noticed() -> None:
    with pytest.raises(DecisionError, match="not complete"):
        _parse(7, _texts(decision(1_000))[1:])


@pytest.mark.parametrize("text", ["", "x", "by hand 7"])
def test_offsets_of_others_are_refused(text: str) -> None:
    with pytest.raises(DecisionError, match="no sink wrote"):
        _parse(7, [text])
