"""Compiles the modules that every request passes through, with mypyc.

    python tools/compile_modules.py DIRECTORY

DIRECTORY gets a copy of src, in which the modules of tools/compiled_modules.txt are also there as
extension modules. Python takes those instead of the source beside them:

    PYTHONPATH=DIRECTORY ottla up

The checkout itself stays as it is, so no compiled module can be older than the source that one
works on. If nothing has changed since the last time, nothing is done. A compile takes about two
minutes, and needs a C compiler, mypy and setuptools.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
LIST = TOOLS / "compiled_modules.txt"
SOURCES = TOOLS.parent / "src"

GROUP = "ottla.compiled"
"""The modules have stubs that load the library `ottla/compiled__mypyc`, which has all the code."""

_STAMP = "compiled.sha256"
_BUILD = "build"
_OPTIMIZE = "1"  # 2 takes longer, and is not faster
_DIRECT_CALLS = ["-fvisibility=hidden", "-fno-plt"]
"""Nothing of the library can be replaced from outside, so its functions call one another directly.

Otherwise each call takes a jump through a table of addresses, as a library's calls do. Functions of
Python are still called through it, but without the jump.
"""


def modules() -> list[str]:
    """Return the modules to compile, as paths below src."""
    lines = LIST.read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def compile_into(directory: Path) -> None:
    """Copy the sources to the directory and compile there, unless that was done with the same."""
    stamp = directory / _STAMP
    digest = _digest()
    if stamp.is_file() and stamp.read_text() == digest:
        return
    stamp.unlink(missing_ok=True)
    _copy_sources(directory)
    subprocess.run([sys.executable, __file__, "--here"], cwd=directory, check=True)
    stamp.write_text(digest)


def _digest() -> str:
    """Return a hash of all that the result depends on."""
    from mypy.version import __version__

    digest = sha256(f"{sys.version} {__version__} {_OPTIMIZE}".encode())
    for path in [Path(__file__), LIST, *sorted(SOURCES.rglob("*.py"))]:
        digest.update(str(path).encode() + path.read_bytes())
    return digest.hexdigest()


def _copy_sources(directory: Path) -> None:
    for package in SOURCES.iterdir():
        if package.is_dir() and (package / "__init__.py").is_file():
            shutil.rmtree(directory / package.name, ignore_errors=True)
            ignored = shutil.ignore_patterns("__pycache__", "*.so")
            shutil.copytree(package, directory / package.name, ignore=ignored)


def _compile_here() -> None:
    from mypyc.build import mypycify
    from setuptools import setup

    extensions = mypycify(
        ["--config-file=", "--ignore-missing-imports", *modules()],
        opt_level=_OPTIMIZE,
        debug_level="0",
        group_name=GROUP,
        target_dir=_BUILD,
    )
    for extension in extensions:
        extension.extra_compile_args = [*extension.extra_compile_args, *_DIRECT_CALLS]
        extension.extra_link_args.append("-s")
    build = ["build_ext", "--inplace", f"--build-temp={_BUILD}", f"--build-lib={_BUILD}/lib"]
    setup(name="ottla", packages=[], ext_modules=extensions, script_args=build)


def main() -> int:
    """Run the command."""
    if sys.argv[1:] == ["--here"]:
        _compile_here()
    elif len(sys.argv) == 2:
        directory = Path(sys.argv[1])
        directory.mkdir(parents=True, exist_ok=True)
        compile_into(directory)
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
