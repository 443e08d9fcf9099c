"""Links and file names in pages, docstrings and comments exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("src/**/*.md"),
        *ROOT.glob("bench/*.md"),
        *ROOT.glob("interop/*.md"),
        *ROOT.glob("packaging/*.md"),
    ]
)
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)]*)?\)")
FILE = re.compile(
    r"(?<![\w/.])((?:src|tests|docs|bench|interop|examples|tools)/[\w./-]+\.(?:py|md))\b"
)
IN_A_FOLDER = re.compile(r"`((?:\w+/)+\w+\.py)`")
FOLDERS = ["src", "tests", "bench", "interop", "tools", "examples"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_leads_to_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [page.parent / target for target, _ in LINK.findall(text) if "://" not in target]
    named = [ROOT / name for name in FILE.findall(text)]
    assert [str(target) for target in [*links, *named] if not target.exists()] == []


def test_every_package_has_a_page() -> None:
    packages = [
        path.parent
        for pattern in ("src/*/__init__.py", "src/ottla/*/__init__.py")
        for path in ROOT.glob(pattern)
    ]
    assert packages
    assert [str(package) for package in packages if not (package / "README.md").exists()] == []


def test_a_file_that_is_named_with_its_folder_is_there() -> None:
    modules = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    paths = {f"/{path.relative_to(ROOT)}" for path in modules}
    ends = {path[at:] for path in paths for at in range(len(path)) if path[at] == "/"}
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in [*PAGES, *modules]
        for name in IN_A_FOLDER.findall(path.read_text(encoding="utf-8"))
        if f"/{name}" not in ends
    ]
    assert missing == []
