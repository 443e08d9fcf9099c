"""The transcripts: commands to a small cluster and the effects that follow, word for word.

After a change on purpose, `OTTLA_REWRITE_TRANSCRIPTS=1 pytest tests/unit/raft` writes them anew;
read the difference before you keep it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.raft_transcript import run

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    expected = path.read_text()
    actual = run(expected)
    if os.environ.get("OTTLA_REWRITE_TRANSCRIPTS"):
        path.write_text(actual)
    else:
        assert actual == expected
