"""How loops over records are compiled: by numba, without the interpreter lock, kept on disk.

numba keeps compiled code beside the source or, where that cannot be written, in the user's
cache directory. Where there is neither, it is kept in a directory of the user's own under the
temporary one; that code is run, so a directory others could have written is not used.

What is kept is found by the source of the file alone: a function and what it calls belong in
one file.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias, TypeVar, cast

import numba
import numpy as np
from numba.core import config, types
from numba.core.cgutils import raw_memcpy
from numba.extending import intrinsic
from numpy.typing import NDArray

F = TypeVar("F", bound=Callable[..., object])
Bytes: TypeAlias = NDArray[np.uint8]

# Without reference counts, which take three quarters of the time where arrays are passed between
# compiled functions: these loops allocate nothing, and their caller holds every array.
_OPTIONS: dict[str, object] = {"nogil": True, "error_model": "numpy", "_nrt": False}
_njit = cast("Callable[..., Callable[[object], object]]", numba.njit)


def compiled(signature: str) -> Callable[[F], F]:
    """Compile a function for these argument types, or take it from the cache."""

    def decorate(function: F) -> F:
        try:
            return _compile(function, signature)
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
        before, config.CACHE_DIR = config.CACHE_DIR, _own_directory()  # type: ignore[attr-defined]
        try:
            return _compile(function, signature)
        finally:
            config.CACHE_DIR = before  # type: ignore[attr-defined]

    return decorate


def part_of_compiled(function: F) -> F:
    """A function that only compiled functions of the same file call, and that becomes part of them.

    A call would copy the description of every array, which takes longer than a record does.
    """
    return cast(F, _njit(forceinline=True, **_OPTIONS)(function))


def _compile(function: F, signature: str) -> F:
    return cast(F, _njit(signature, cache=True, **_OPTIONS)(function))


def _own_directory() -> str:
    directory = Path(tempfile.gettempdir(), f"ottla-compiled-{os.getuid()}")
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
        return str(directory)
    return tempfile.mkdtemp(prefix="ottla-compiled-")


def _copy(_typing, target, target_start, source, source_start, length):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        into = context.make_array(signature.args[0])(context, builder, arguments[0])
        out_of = context.make_array(signature.args[2])(context, builder, arguments[2])
        raw_memcpy(  # type: ignore[no-untyped-call]
            builder,
            builder.gep(into.data, [arguments[1]]),
            builder.gep(out_of.data, [arguments[3]]),
            arguments[4],
            1,
        )
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


copy = cast("Callable[[Bytes, int, Bytes, int, int], None]", intrinsic(_copy))
"""memcpy of (target, at, source, at, length), for compiled code that has checked all bounds."""
