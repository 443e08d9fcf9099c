"""The README of a package names its files, and only files that exist."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted(ROOT.glob("src/**/README.md"))
CODE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w./*]+\.py")
FOLDER = re.compile(r"[\w/]+/")
TABLE_OF = re.compile(r"^\| file of `([\w/]+)/` \|", re.MULTILINE)


def own_files(package: Path) -> list[Path]:
    """Return the modules of a package and its folders, without those that have a page."""
    modules = [path for path in package.rglob("*.py") if path.name != "__init__.py"]
    return [path for path in sorted(modules) if page_of(path) == package / "README.md"]


def page_of(path: Path) -> Path:
    """Return the page that a file belongs to: the nearest one above it."""
    return next(page for parent in path.parents if (page := parent / "README.md").exists())


def names(page: Path, pattern: re.Pattern[str]) -> list[str]:
    """Return the file or folder names that a page has as code."""
    quoted = CODE.findall(page.read_text(encoding="utf-8"))
    return [name for text in quoted for name in text.split() if pattern.fullmatch(name)]


def relative(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_file_is_named(page: Path) -> None:
    package = page.parent
    files, folders = names(page, FILE), names(page, FOLDER)

    def is_named(path: Path) -> bool:
        below = str(path.relative_to(package))
        return any(below.startswith(folder) for folder in folders) or any(
            fnmatch(below, name) or fnmatch(path.name, name) for name in files
        )

    assert [relative(path) for path in own_files(package) if not is_named(path)] == []


def test_a_table_of_a_folder_names_all_its_files() -> None:
    pages = [*PAGES, ROOT / "interop/README.md"]
    folders = [
        (page, page.parent / name)
        for page in pages
        for name in TABLE_OF.findall(page.read_text(encoding="utf-8"))
    ]
    missing = [
        relative(path)
        for page, folder in folders
        for path in sorted(folder.glob("*.py"))
        if path.name != "__init__.py" and path.name not in names(page, FILE)
    ]
    assert len(folders) > 1
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_named_file_exists(page: Path) -> None:
    package = page.parent
    modules = [f"/{path.relative_to(ROOT)}" for path in ROOT.glob("src/**/*.py")]

    def exists(name: str) -> bool:
        if name.startswith("..") or "/" not in name:
            return (package / name).exists() or any(package.rglob(name.removeprefix("../")))
        return any(fnmatch(module, f"*/{name}") for module in modules) or (ROOT / name).exists()

    assert [name for name in names(page, FILE) if not exists(name)] == []
