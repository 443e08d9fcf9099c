"""Cycles in the dependencies of transactions: which are found, and which are no failure."""

from __future__ import annotations

import pytest

from ottla.sim.cluster_run.transaction_cycles import TransactionCycles, cycles
from ottla.sim.network.exchange import Violation

A, B = ("out", 0), ("out", 1)


def test_groups_of_nodes_that_reach_each_other() -> None:
    graph = {1: {2}, 2: {3}, 3: {1, 4}, 4: {5}, 6: {6}, 7: {1}}
    assert sorted(map(sorted, cycles(graph))) == [[1, 2, 3], [6]]


def test_a_long_chain_has_no_cycle() -> None:
    assert list(cycles({number: {number + 1} for number in range(5000)})) == []


def test_interleaved_writes_of_several_producers_are_counted() -> None:
    found = TransactionCycles()
    for transaction, key in ((1, A), (2, A), (2, B), (1, B)):
        found.wrote(transaction, f"id-{transaction}", key)
    assert found.check() == 1


def test_writes_of_one_producer_may_not_be_interleaved() -> None:
    found = TransactionCycles()
    for transaction in (1, 2, 1):
        found.wrote(transaction, "id", A)
    with pytest.raises(Violation, match="transactions of id have written in a cycle"):
        found.check()


def test_writes_in_one_order_are_no_cycle() -> None:
    found = TransactionCycles()
    for transaction in (1, 1, 2, 3):
        for key in (A, B):
            found.wrote(transaction, "id", key)
    assert found.check() == 0


def test_transactions_may_not_read_from_each_other() -> None:
    found = TransactionCycles()
    found.read(1, writer=2)
    assert found.check() == 0
    found.read(2, writer=1)
    with pytest.raises(Violation, match=r"read from each other in a cycle: \[1, 2\]"):
        found.check()


def test_a_transaction_may_not_read_its_own_writes() -> None:
    found = TransactionCycles()
    found.read(1, writer=1)
    with pytest.raises(Violation, match="cycle"):
        found.check()
