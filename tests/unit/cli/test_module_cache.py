"""The compiled modules of a broker in one file: `ottla.cli.module_cache`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from crc32c import _crc32c

import ottla

PROGRAM = """
import sys
from ottla.cli import module_cache
module_cache.PACKAGE = "house"
cache = module_cache.ModuleCache(*sys.argv[1:])
cache.use()
import house.kitchen
print(house.kitchen.DISH, house.kitchen.__spec__.loader is cache, house.__path__, flush=True)
cache.renew()
"""


class House:
    """A package with a module, and a cache of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cache = root / "cache.modules"
        self.library = root / "library.so"
        self.package = root / "house"
        self.package.mkdir()
        (self.package / "__init__.py").write_text("")
        self.cook("soup")

    def cook(self, dish: str) -> None:
        (self.package / "kitchen.py").write_text(f"DISH = {dish!r}\n")

    def run(self, **environment: str) -> tuple[str, bool]:
        """Import the module in a process. Return its constant, and if it came from the cache."""
        source = os.path.dirname(os.path.dirname(ottla.__file__))
        path = os.pathsep.join([str(self.root), source])
        inherited = {
            key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"
        }
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(self.cache), str(self.library)],
            env=inherited | {"PYTHONPATH": path} | environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        dish, cached, folder = done.stdout.split(maxsplit=2)
        assert folder.strip() == str([str(self.package)])
        return dish, cached == "True"


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_second_process_takes_modules_from_the_cache(house: House) -> None:
    assert house.run() == ("soup", False)
    assert house.run() == ("soup", True)


def test_cache_is_written_only_if_something_is_new(house: House) -> None:
    house.run()
    written = house.cache.stat().st_mtime_ns
    house.run()
    assert house.cache.stat().st_mtime_ns == written


def test_changed_source_is_compiled_again(house: House) -> None:
    house.run()
    house.cook("salad")
    assert house.run() == ("salad", False)
    assert house.run() == ("salad", True)


def test_source_of_the_same_size_and_another_time_is_compiled_again(house: House) -> None:
    house.run()
    kitchen = house.package / "kitchen.py"
    house.cook("stew")
    os.utime(kitchen, ns=(0, kitchen.stat().st_mtime_ns + 2_000_000_000))
    assert house.run() == ("stew", False)


@pytest.mark.parametrize("damage", [b"", b"abc", b"\0" * 4096, b"\xff" * 100])
def test_damaged_cache_is_none(house: House, damage: bytes) -> None:
    house.run()
    house.cache.write_bytes(damage)
    assert house.run() == ("soup", False)
    assert house.run() == ("soup", True)


def test_every_flipped_byte_is_noticed(house: House) -> None:
    house.run()
    content = bytearray(house.cache.read_bytes())
    content[len(content) // 2] ^= 1
    house.cache.write_bytes(content)
    assert house.run() == ("soup", False)


def test_another_python_does_not_take_it(house: House) -> None:
    house.run()
    assert house.run(PYTHONOPTIMIZE="1") == ("soup", False)


def test_extension_modules_that_come_or_go_are_noticed(house: House) -> None:
    house.run()
    for content in (b"compiled", b"compiled again"):
        house.library.write_bytes(content)
        assert house.run() == ("soup", False)
        assert house.run() == ("soup", True)
    house.library.unlink()
    assert house.run() == ("soup", False)


def test_extension_module_is_left_to_python(house: House) -> None:
    shutil.copy(_crc32c.__file__, house.package)
    kitchen = house.package / "kitchen.py"
    kitchen.write_text(kitchen.read_text() + "import house._crc32c\n")
    assert house.run() == ("soup", False)
    written = house.cache.stat().st_mtime_ns
    assert house.run() == ("soup", True)
    assert house.cache.stat().st_mtime_ns == written


def test_nothing_is_written_where_python_writes_nothing(house: House) -> None:
    house.run(PYTHONDONTWRITEBYTECODE="1")
    assert not house.cache.exists()


def test_cache_that_cannot_be_written_is_left_out(house: House) -> None:
    house.cache.mkdir()
    assert house.run() == ("soup", False)
    assert [path.name for path in house.root.iterdir() if path.is_file()] == []


def test_a_new_installation_can_write_the_cache_before_the_first_broker(tmp_path: Path) -> None:
    package = tmp_path / "ottla"
    shutil.copytree(
        Path(ottla.__file__).parent,
        package,
        ignore=shutil.ignore_patterns("*.modules", "*.opt-*.pyc"),
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    for command in (["compileall", "-q", str(package)], ["ottla.cli.module_cache"]):
        subprocess.run([sys.executable, "-m", *command], env=environment, check=True)
    code = (
        "from ottla.cli.module_cache import module_cache; cache = module_cache(); cache.use();"
        "import ottla.server.main as main; print(main.__spec__.loader is cache, main.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["True", str(package / "server/main.py")]
