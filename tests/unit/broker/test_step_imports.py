"""What a broker imports later is imported in steps, each of a few modules."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ottla.broker import step_imports

MOST_MODULES = 13
"""In a step: about three milliseconds."""

PROGRAM = """
import sys
import ottla.server.main
import ottla.broker.handlers.create_topics
from ottla.broker.step_imports import import_in_steps

modules = sys.argv[1:]
counts = []
before = len(sys.modules)
for _ in import_in_steps(modules):
    counts.append(len(sys.modules) - before)
    before = len(sys.modules)
assert modules[-1] in sys.modules
assert "_hashlib" not in sys.modules, "OpenSSL is not needed"
print(max(counts), sum(counts))
"""


@pytest.mark.parametrize("name", ["GROUPS", "TRANSACTIONS", "CLEANER"])
def test_no_step_imports_everything(name: str) -> None:
    modules = getattr(step_imports, name)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *modules], capture_output=True, text=True, check=True
    )
    most, total = map(int, done.stdout.split())
    assert most <= MOST_MODULES, f"{most} of {total}"
    assert total > 10
