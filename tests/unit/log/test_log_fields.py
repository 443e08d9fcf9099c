"""Only the package `log` sets fields of a Log. Others move its high watermark, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from ottla.log.log import Log

SRC = Path(__file__).parents[3] / "src"
OWN = SRC / "ottla" / "log"
FIELDS = set(Log.__slots__)
MOVES_HIGH_WATERMARKS = {
    "ottla/controller/metadata_quorum.py",
    "ottla/controller/quorum/driver.py",
    "ottla/replication/partition_follower.py",
    "ottla/replication/partition_leader.py",
}


def writes(path: Path) -> Iterator[str]:
    """Yield the fields that a module sets of what it calls a log."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            owner = ast.unparse(node.value).rpartition(".")[2].lstrip("_")
            if node.attr in FIELDS and owner == "log":
                yield node.attr


def test_nobody_else_sets_fields_of_a_log() -> None:
    found = {
        str(path.relative_to(SRC)): fields
        for path in sorted(SRC.rglob("*.py"))
        if OWN not in path.parents and (fields := set(writes(path)))
    }
    assert found == {path: {"high_watermark"} for path in MOVES_HIGH_WATERMARKS}


def test_the_cleaner_uses_a_method_too() -> None:
    cleaner = OWN / "cleaner"
    assert [path.name for path in sorted(cleaner.glob("*.py")) if list(writes(path))] == []
