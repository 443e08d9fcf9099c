"""A dict of very many entries: like any other dict, but none of its parts is large."""

from __future__ import annotations

from random import Random

import pytest

from ottla.broker.large_requests import chained_dict
from ottla.broker.large_requests.chained_dict import MOST_ENTRIES, ChainedDict
from ottla.model.steps import run_to_end
from ottla.wire.discard import discard_in_steps


def test_it_does_what_a_dict_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chained_dict, "MOST_ENTRIES", 10)
    expected: dict[int, str] = {}
    chained: ChainedDict[int, str] = ChainedDict()
    chance = Random(1)
    for number in range(1000):
        key = chance.randrange(200)
        expected[key] = f"value {number}"
        chained.put(key, f"value {number}")
    assert list(chained.entries()) == list(expected.items())
    assert list(chained.keys()) == list(expected)
    assert list(chained.values()) == list(expected.values())
    assert {key: chained.find(key) for key in expected} == expected
    assert chained.find(1000) is None
    assert {len(part) for part in chained[:-1]} == {10}


def test_no_part_is_large() -> None:
    chained: ChainedDict[int, int] = ChainedDict()
    for number in range(3 * MOST_ENTRIES):
        chained.put(number, number)
    assert [len(part) for part in chained] == [MOST_ENTRIES] * 3


def test_it_is_discarded_in_steps() -> None:
    inner: ChainedDict[int, list[int]] = ChainedDict()
    inner.put(1, [1, 2])
    outer: ChainedDict[str, ChainedDict[int, list[int]]] = ChainedDict()
    outer.put("t", inner)
    run_to_end(discard_in_steps(outer))
    assert (outer, inner) == ([], [])
