"""Which transactions wrote before others, and which read what others wrote: cycles among them.

The graph is that of Jepsen's workload for Kafka: an edge leads from a transaction to the one that
wrote to the same partition next (ww), and from a transaction to one that read what it wrote (wr).

    G0     a cycle of ww edges. Kafka's transactions do not isolate writes from each other: those
           of several producers may be interleaved, in another order in each partition. So such
           cycles are counted and allowed, unless all transactions are of one transactional id:
           these come one after the other everywhere
    G1c    a cycle of wr edges. It must not be: readers see only what is committed. A transaction
           that reads its own writes is the shortest one. With ww edges in it, it is allowed like G0
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from ottla.sim.cluster_run.history import PartitionKey
from ottla.sim.network.exchange import Violation

Graph = Mapping[int, set[int]]
"""The successors of each transaction."""


class TransactionCycles:
    """The dependencies between transactions, by their numbers."""

    def __init__(self) -> None:
        self._ids: dict[int, str] = {}
        self._writers: dict[PartitionKey, list[int]] = {}
        """Who wrote to a partition, in the order of the log."""
        self._readers: dict[int, set[int]] = {}
        """Who read what a transaction wrote."""

    def wrote(self, transaction: int, transactional_id: str, key: PartitionKey) -> None:
        """Take note of a committed batch."""
        self._ids[transaction] = transactional_id
        writers = self._writers.setdefault(key, [])
        if not writers or writers[-1] != transaction:
            writers.append(transaction)

    def read(self, transaction: int, writer: int) -> None:
        """Take note that a transaction has read what another one wrote."""
        self._readers.setdefault(writer, set()).add(transaction)

    def check(self) -> int:
        """Return how many cycles of writes there are. Raise Violation if one must not be."""
        for cycle in cycles(self._readers):
            raise Violation(f"transactions have read from each other in a cycle: {sorted(cycle)}")
        for transactional_id in sorted(set(self._ids.values())):
            for cycle in cycles(self._next_writers(transactional_id)):
                raise Violation(
                    f"transactions of {transactional_id} have written in a cycle: {sorted(cycle)}"
                )
        return sum(1 for _ in cycles(self._next_writers()))

    def _next_writers(self, transactional_id: str | None = None) -> Graph:
        """Return who wrote after whom, of one transactional id or of all."""
        graph: dict[int, set[int]] = {}
        for writers in self._writers.values():
            of_id = [each for each in writers if transactional_id in (None, self._ids[each])]
            for first, second in pairwise(of_id):
                if first != second:
                    graph.setdefault(first, set()).add(second)
        return graph


def cycles(graph: Graph) -> Iterable[set[int]]:
    """Iterate over the groups of nodes that reach each other, and nodes that reach themselves.

    Tarjan's algorithm, without recursion.
    """
    order: dict[int, int] = {}
    lowest: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    for root in graph:
        if root in order:
            continue
        work = [(root, iter(sorted(graph.get(root, ()))))]
        order[root] = lowest[root] = len(order)
        path.append(root)
        on_path.add(root)
        while work:
            node, successors = work[-1]
            for successor in successors:
                if successor not in order:
                    order[successor] = lowest[successor] = len(order)
                    path.append(successor)
                    on_path.add(successor)
                    work.append((successor, iter(sorted(graph.get(successor, ())))))
                    break
                if successor in on_path:
                    lowest[node] = min(lowest[node], order[successor])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[node])
                if lowest[node] == order[node]:
                    found = set()
                    while node not in found:
                        found.add(path.pop())
                    on_path -= found
                    if len(found) > 1 or node in graph.get(node, ()):
                        yield found
