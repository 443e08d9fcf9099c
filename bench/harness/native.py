"""The load generators in C. They are compiled into the cache on first use.

They use the librdkafka of the confluent-kafka wheel: the client that Python users have. So only a C
compiler is needed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from harness.cache import cache_directory
from harness.problem import BenchError

SOURCES = Path(__file__).resolve().parent.parent / "native"
FLAGS = ("-O2", "-Wall", "-Wextra", "-pthread")
COMPILE_TIMEOUT_S = 120


@cache
def raw_load() -> Path:
    """Return the generator of one-record requests."""
    return _compiled("raw_load", ())


@cache
def rdkafka_load() -> Path:
    """Return the generator that uses librdkafka."""
    library = librdkafka()
    return _compiled("rdkafka_load", (str(library), f"-Wl,-rpath,{library.parent}"))


@cache
def transactions_load() -> Path:
    """Return the generator of transactions."""
    library = librdkafka()
    return _compiled("transactions_load", (str(library), f"-Wl,-rpath,{library.parent}"))


@cache
def group_raw() -> Path:
    """Return the generator of commits and heartbeats."""
    return _compiled("group_raw", ())


@cache
def group_settle() -> Path:
    """Return the generator of a group of librdkafka consumers."""
    library = librdkafka()
    return _compiled("group_settle", (str(library), f"-Wl,-rpath,{library.parent}"))


@cache
def hops() -> Path:
    """Return the program with the hops of a replicated message."""
    return _compiled("hops", ())


def librdkafka() -> Path:
    """Return the shared library in the confluent-kafka wheel."""
    spec = importlib.util.find_spec("confluent_kafka")
    if spec is None or spec.origin is None:
        raise BenchError("confluent-kafka is not installed in this environment")
    bundled = Path(spec.origin).parent.parent / "confluent_kafka.libs"
    libraries = sorted(bundled.glob("librdkafka-*.so*"))
    if not libraries:
        raise BenchError(f"confluent-kafka has no librdkafka in {bundled.name}")
    return libraries[0]


def _compiled(name: str, link: tuple[str, ...]) -> Path:
    program = cache_directory() / f"{name}-{_fingerprint(link)}"
    if not program.exists():
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise BenchError(f"no C compiler (cc) for the load generator {name}")
        fresh = program.with_suffix(f".{os.getpid()}")
        command = [compiler, *FLAGS, "-o", str(fresh), str(SOURCES / f"{name}.c"), *link]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False
        )
        if done.returncode != 0:
            raise BenchError(f"{name}.c does not compile:\n{done.stderr.strip()}")
        fresh.rename(program)
    return program


def _fingerprint(link: tuple[str, ...]) -> str:
    digest = hashlib.sha256(repr((FLAGS, link)).encode())
    for source in sorted(SOURCES.glob("*.[ch]")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
