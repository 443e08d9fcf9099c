"""CRC-32C from the `crc32c` package, without the other imports of that package.

The package's `__init__` reads its version through importlib.metadata, which loads email,
socket and some forty other modules: 30 ms and several MB that a broker does not need. The
function itself is in one extension module, which is loaded here directly.
"""

from __future__ import annotations

from importlib.machinery import ExtensionFileLoader, PathFinder
from typing import Final, Protocol, cast

from ottla.ports import Buffer


class _Crc(Protocol):
    def __call__(self, data: Buffer, value: int = 0, /) -> int:
        """Return the CRC-32C of `data`, or of bytes with the CRC `value` followed by `data`."""
        ...


def _load() -> _Crc:
    package = PathFinder.find_spec("crc32c")
    if package is not None and package.submodule_search_locations:
        spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if spec is not None and isinstance(spec.loader, ExtensionFileLoader):
            module = spec.loader.create_module(spec)
            spec.loader.exec_module(module)
            return cast(_Crc, module.crc32c)
    # Another layout of the package, in a later release or another kind of installation.
    from crc32c import crc32c as imported

    return imported


crc32c: Final = _load()
