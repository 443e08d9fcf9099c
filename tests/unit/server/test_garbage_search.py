"""A copy of the process counts garbage, and the memory of garbage stays bounded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

PLANTED = """
import gc
import os
import sys
import time
from weakref import ref
from ottla.server.garbage_search import GarbageSearch

class Cycle:
    def __init__(self):
        self.itself = self

    def __del__(self):
        print("finalized", file=open(sys.argv[1], "a"))

def called(_):
    print("called", file=open(sys.argv[1], "a"))

def has(least):
    search = GarbageSearch(least)
    while (result := search.result()) is None:
        time.sleep(0)
    return result

cycles = [Cycle() for _ in range(1000)]
watching = [ref(each, called) for each in cycles]
gc.freeze()
assert not has(500), "they are in use"
del cycles
assert has(500)
assert has(1000)
assert not has(1001)
ended = GarbageSearch(1000)
ended.end()
assert ended.result() is False
assert not os.path.exists(sys.argv[1])
"""

BOUNDED = """
import gc
import sys
import time
sys.path.insert(0, sys.argv[1])
from ottla.server import garbage_collection
from ottla.server.garbage_collection import GarbageCollection
from tests.support.broker import Broker

class Cycle:
    count = 0

    def __init__(self):
        self.itself = self
        Cycle.count += 1

    def __del__(self):
        Cycle.count -= 1

garbage_collection.MUCH_BLOCKS = 20_000
garbage_collection.LONGEST_SEARCH_MS = float("inf")  # the broker's clock goes fast
broker = Broker()
collection = GarbageCollection(broker.node)
blocks, most = sys.getallocatedblocks(), 0
for _ in range(100):
    broker.node.pause_collection(True)
    kept = [Cycle() for _ in range(10_000)]
    broker.node.pause_collection(False)
    del kept
    broker.pass_time(garbage_collection.CHECK_MS)
    while collection._search is not None:
        broker.pass_time(garbage_collection.SEARCH_MS)
        time.sleep(0)
    most = max(most, Cycle.count)
    assert most < blocks, (most, blocks)
assert most > 50_000, "it was freed before"
"""


def run(program: str, argument: object) -> None:
    command = [sys.executable, "-c", program, str(argument)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_a_copy_counts_garbage_and_calls_nothing(tmp_path: Path) -> None:
    run(PLANTED, tmp_path / "calls")


def test_memory_of_garbage_stays_bounded() -> None:
    run(BOUNDED, ROOT)
