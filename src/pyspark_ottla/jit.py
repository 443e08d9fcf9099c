"""Compiles loops over records with numba. They run without the GIL and are cached on disk.

numba caches compiled code next to the source file or, if it cannot write there, in the user's
cache directory. If neither can be written, the cache is a directory of the user under the
temporary directory. Cached code is executed, so a directory that others can write to is not used.

numba decides by the source file alone whether the cache is valid. So a compiled function and the
functions it calls must be in the same file.
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

# Without reference counting (`_nrt`), which takes three quarters of the time when arrays are
# passed between compiled functions. These loops allocate nothing, and their caller holds every
# array.
_OPTIONS: dict[str, object] = {"nogil": True, "error_model": "numpy", "_nrt": False}
_njit = cast("Callable[..., Callable[[object], object]]", numba.njit)


def compiled(signature: str) -> Callable[[F], F]:
    """Compile a function for these argument types, or load it from the cache."""

    def decorate(function: F) -> F:
        try:
            return _compile(function, signature)
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
        before, config.CACHE_DIR = config.CACHE_DIR, _private_directory()  # type: ignore[attr-defined]
        try:
            return _compile(function, signature)
        finally:
            config.CACHE_DIR = before  # type: ignore[attr-defined]

    return decorate


def inlined(function: F) -> F:
    """Inline a function into the compiled functions of the same file that call it.

    A call would copy the descriptor of every array, which takes longer than decoding a record.
    """
    return cast(F, _njit(forceinline=True, **_OPTIONS)(function))


def _compile(function: F, signature: str) -> F:
    return cast(F, _njit(signature, cache=True, **_OPTIONS)(function))


def _private_directory() -> str:
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
"""memcpy with arguments (target, target position, source, source position, length).

Only for compiled code, which must check all bounds itself."""
