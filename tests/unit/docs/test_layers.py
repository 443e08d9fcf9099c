"""Every package has its place in the import contract and in the pictures of the layers."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CORE = "The core does no I/O"
AT_THE_EDGE = {"cli", "client", "server", "testing", "tier_reader"}
WORD = re.compile(r"\w+")
BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)


def contracts() -> dict[str, dict[str, list[str]]]:
    """Return the import contracts by name."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        found = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    return {contract["name"]: contract for contract in found}


def packages() -> set[str]:
    """Return the names of the packages of Ottla."""
    return {path.parent.name for path in (ROOT / "src/ottla").glob("*/__init__.py")}


def test_every_package_is_a_layer() -> None:
    layers = contracts()["One direction of import"]["layers"]
    named = {name for layer in layers for name in layer.split(" | ")}
    modules = {path.stem for path in (ROOT / "src/ottla").glob("*.py")} - {"__init__"}
    expected = {f"ottla.{name}" for name in packages() | modules}
    assert named == expected | {"ottla_spark", "pyspark_ottla"}


def test_every_package_is_at_the_edge_or_does_no_io() -> None:
    core = {name.removeprefix("ottla.") for name in contracts()[CORE]["source_modules"]}
    assert packages() - core == AT_THE_EDGE


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md"])
def test_every_package_is_in_the_picture(page: str) -> None:
    blocks = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    (picture,) = [block for block in blocks if "pyspark_ottla" in block]
    assert packages() - set(WORD.findall(picture)) == set()
