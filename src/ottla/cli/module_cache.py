"""The compiled modules of a broker in one file, so that the next broker starts faster.

Python looks for each module in its folder and reads the compiled code from a file of its own. For
the 200 modules of a broker this takes a fifth of the time until it is ready. So a broker writes
the code of all modules it has loaded to one file, in `__pycache__` beside Python's own files. The
next broker takes it from there.

The rules are Python's: code counts as long as its source has the same size and time of
modification, for the same Python. Whatever does not fit is left to Python. A file that cannot be
read or written is none. `python -m ottla.cli.module_cache` writes the file without a broker.

Modules that a C compiler has made (docs/adr/0027) are left to Python. The file is for one library
of them, or for none: it must not have the code of a module that is an extension module now.
"""

from __future__ import annotations

import marshal
import os
import sys
from binascii import crc32
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from mmap import ACCESS_READ, mmap
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    Loader = object

PACKAGE: Final = "ottla"
LIBRARY: Final = "compiled__mypyc"
"""The file, without its suffix, that tools/compile_modules.py gives the code of its modules."""

_PYC_HEADER_BYTES: Final = 16
_RENEW_AFTER_S: Final = 1.0

_MadeFor = tuple[str, int, tuple[int, int] | None]
"""Version of Python, its -O, size and time of the library."""

_Source = tuple[str, str, bool, int, int]
"""Source file, Python's own compiled file, is a package, modified (s), bytes of the source."""


class ModuleCache(Loader):
    """Finds and loads modules from the file. It is one of Python's finders once `use` is called.

    The file has a CRC, the length of an index, the index, and the compiled code of the modules.
    `library` has the code of the extension modules, if there are any.
    """

    def __init__(self, path: str, library: str) -> None:
        self._path = path
        self._made_for = (sys.version, sys.flags.optimize, _size_and_time(library))
        self._sources: dict[str, _Source] = {}
        self._places: dict[str, slice] = {}
        self._content = memoryview(b"")

    def use(self) -> None:
        """Read the file, if there is one, and let Python find modules in it."""
        try:
            with open(self._path, "rb") as file:
                content = memoryview(mmap(file.fileno(), 0, access=ACCESS_READ))
        except (OSError, ValueError):
            return
        if len(content) < 8 or crc32(content[4:]) != int.from_bytes(content[:4], "little"):
            return
        start = 8 + int.from_bytes(content[4:8], "little")
        made_for, modules = marshal.loads(content[8:start])
        if made_for != self._made_for:
            return
        for name, source, length in modules:
            self._sources[name] = source
            self._places[name] = slice(start, start + length)
            start += length
        self._content = content
        sys.meta_path.insert(0, self)

    def renew_soon(self) -> None:
        """Call `renew` in a thread of its own, after the first requests were served."""
        from threading import Timer

        timer = Timer(_RENEW_AFTER_S, self.renew)
        timer.daemon = True
        timer.start()

    def renew(self) -> None:
        """Write the file again if modules were loaded that it does not have. Let go of it."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        new = [spec for spec in _loaded_modules() if not self._has(spec)]
        if new and not sys.dont_write_bytecode:
            self._write(new)
        self._sources, self._places, self._content = {}, {}, memoryview(b"")

    def build(self) -> None:
        """Write the file, so that the first broker finds it. Python has to have compiled Ottla."""
        import ottla.broker.handlers.api_versions
        import ottla.broker.handlers.fetch
        import ottla.broker.handlers.metadata
        import ottla.broker.handlers.produce
        import ottla.server.main  # noqa: F401

        self._write(_loaded_modules())

    def _write(self, new: list[ModuleSpec]) -> None:
        modules = {
            name: (source, bytes(self._content[self._places[name]]))
            for name, source in self._sources.items()
            if _is_unchanged(source)
        }
        modules |= {spec.name: module for spec in new if (module := _compiled(spec))}
        _write(self._path, self._made_for, modules)

    def _has(self, spec: ModuleSpec) -> bool:
        source = self._sources.get(spec.name)
        return source is not None and (spec.loader is self or _is_unchanged(source))

    # -- for Python's import ---------------------------------------------------------

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is, or None if it is not in the file or its source has changed."""
        source = self._sources.get(fullname)
        if source is None or not _is_unchanged(source):
            return None
        file, cached, is_package, _, _ = source
        spec = ModuleSpec(fullname, self, origin=file, is_package=is_package)
        spec.has_location = True
        spec.cached = cached
        if is_package:
            spec.submodule_search_locations = [os.path.dirname(file)]
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leave it to Python to create a module."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Run the code of a module."""
        code: CodeType = marshal.loads(self._content[self._places[module.__name__]])
        exec(code, module.__dict__)


def module_cache() -> ModuleCache:
    """Return the cache of this installation of Ottla, for this Python."""
    package = os.path.dirname(os.path.dirname(__file__))
    return ModuleCache(
        f"{package}/__pycache__/broker.{sys.implementation.cache_tag}.modules",
        f"{package}/{LIBRARY}{EXTENSION_SUFFIXES[0]}",
    )


def _loaded_modules() -> list[ModuleSpec]:
    """Return the loaded modules that Python compiles; extension modules are none of them."""
    modules = [module for name, module in list(sys.modules.items()) if _is_ours(name)]
    return [spec for module in modules if (spec := module.__spec__) and spec.cached]


def _is_ours(name: str) -> bool:
    return name == PACKAGE or name.startswith(f"{PACKAGE}.")


def _size_and_time(file: str) -> tuple[int, int] | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _is_unchanged(source: _Source) -> bool:
    file, _, _, modified, size = source
    try:
        status = os.stat(file)
    except OSError:
        return False
    return int(status.st_mtime) == modified and status.st_size == size


def _compiled(spec: ModuleSpec) -> tuple[_Source, bytes] | None:
    """Return a module that Python has compiled, or None if its file does not fit the source."""
    if spec.origin is None or spec.cached is None:
        return None
    try:
        status = os.stat(spec.origin)
        with open(spec.cached, "rb") as file:
            content = file.read()
    except OSError:
        return None
    flags, modified, size = (
        int.from_bytes(content[start : start + 4], "little") for start in (4, 8, 12)
    )
    if flags or modified != int(status.st_mtime) & 0xFFFFFFFF or size != status.st_size:
        return None
    is_package = spec.submodule_search_locations is not None
    source = (spec.origin, spec.cached, is_package, int(status.st_mtime), status.st_size)
    return source, content[_PYC_HEADER_BYTES:]


def _write(path: str, made_for: _MadeFor, modules: dict[str, tuple[_Source, bytes]]) -> None:
    """Replace the file as a whole: other processes may read and write it at the same time."""
    index = marshal.dumps(
        (made_for, [(name, source, len(code)) for name, (source, code) in modules.items()])
    )
    content = b"".join(
        (len(index).to_bytes(4, "little"), index, *(code for _, code in modules.values()))
    )
    written = f"{path}.{os.getpid()}"
    try:
        with open(written, "wb") as file:
            file.write(crc32(content).to_bytes(4, "little") + content)
        os.replace(written, path)
    except OSError:
        with suppress(OSError):
            os.unlink(written)


if __name__ == "__main__":
    module_cache().build()
