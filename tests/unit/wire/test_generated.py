"""The committed messages are the current output of the generator."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WIRE = ROOT / "src" / "ottla" / "wire"


def contents(directory: Path) -> dict[str, str]:
    files = [directory / "api_table.py", *(directory / "messages").glob("*.py")]
    return {file.name: file.read_text() for file in files}


@pytest.mark.skipif(find_spec("kio") is None, reason="needs kio, the source of the schemas")
def test_generating_again_changes_nothing(tmp_path: Path) -> None:
    stale = tmp_path / "messages" / "no_such_api.py"
    stale.parent.mkdir()
    stale.touch()
    script = ROOT / "tools" / "generate_wire.py"
    subprocess.run([sys.executable, script, tmp_path], check=True)
    assert contents(tmp_path) == contents(WIRE)
