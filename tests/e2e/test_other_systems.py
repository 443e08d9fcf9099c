"""A broker without anything that only Linux has: what macOS runs, as far as Linux can tell.

The names are taken away before Ottla is imported. What cannot be tried here is kqueue itself; a
fake is in `tests/unit/server/test_poller.py`.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ottla
from tests.harness.confluent import Confluent
from tests.harness.model import EARLIEST
from tests.harness.process import READY

ROOT = Path(ottla.__file__).parent
LINUX_ONLY = {
    "os": (
        "eventfd eventfd_read eventfd_write EFD_CLOEXEC EFD_NONBLOCK EFD_SEMAPHORE fdatasync"
        " pwritev preadv sched_setscheduler sched_getscheduler sched_param sched_yield"
        " sched_getaffinity sched_setaffinity SCHED_BATCH SCHED_IDLE posix_fadvise"
        " posix_fallocate memfd_create splice copy_file_range pidfd_open pipe2 O_DIRECT O_TMPFILE"
        " O_NOATIME O_PATH"
    ),
    "select": (
        "epoll EPOLLIN EPOLLOUT EPOLLRDHUP EPOLLHUP EPOLLERR EPOLLET POLLRDHUP EPOLL_CLOEXEC"
    ),
    "socket": (
        "MSG_MORE TCP_CONGESTION TCP_CORK TCP_QUICKACK TCP_USER_TIMEOUT SO_BINDTODEVICE"
        " SO_INCOMING_CPU SOCK_NONBLOCK SOCK_CLOEXEC"
    ),
    "resource": "prlimit RLIMIT_SIGPENDING RLIMIT_MSGQUEUE",
    "fcntl": "F_OFD_SETLK F_OFD_SETLKW F_ADD_SEALS F_SETPIPE_SZ",
    "signal": "sigtimedwait sigwaitinfo pthread_sigqueue",
    "time": "CLOCK_BOOTTIME CLOCK_MONOTONIC_COARSE CLOCK_TAI",
    "mmap": "MAP_POPULATE MAP_STACK MAP_DENYWRITE",
}
GUARDED = {  # where each name is used only if it is there
    "server/background.py": {"sched_setscheduler", "sched_param", "SCHED_BATCH"},
    "server/giving_way.py": {"sched_setscheduler", "sched_param", "SCHED_BATCH"},
    "server/helper_copy.py": {"F_SETPIPE_SZ"},
    "server/helper_files.py": {"posix_fadvise", "preadv", "pwritev"},
    "server/helper_main.py": {"sched_getaffinity"},
    "server/os_files.py": set(),
    "server/poller.py": {
        "epoll",
        *("EPOLLIN", "EPOLLOUT", "EPOLLRDHUP", "EPOLLHUP", "EPOLLERR"),
    },
    "server/waker.py": {"eventfd", "EFD_CLOEXEC", "EFD_NONBLOCK"},
}
PROGRAM = f"""
import fcntl, mmap, os, resource, select, signal, socket, subprocess, sys, time
import http.server, queue, threading, traceback

for module, names in {LINUX_ONLY!r}.items():
    for name in names.split():
        if hasattr(sys.modules[module], name):
            delattr(sys.modules[module], name)
fcntl.F_FULLFSYNC = 51
synced = []
fcntl_of_the_system = fcntl.fcntl
def fcntl_with_full_sync(fd, command, *rest):
    if command == fcntl.F_FULLFSYNC:
        synced.append(fd)
        raise OSError(45, "Operation not supported")  # as some file systems of macOS say
    return fcntl_of_the_system(fd, command, *rest)
fcntl.fcntl = fcntl_with_full_sync
import errno
errno.ENOTSUP = 45
set_limit = resource.setrlimit
def limited(kind, limits):
    if limits[0] > 10_240:
        raise ValueError("current limit exceeds maximum limit")
    set_limit(kind, (limits[0], get_limit(kind)[1]))
resource.setrlimit = limited
get_limit = resource.getrlimit
resource.getrlimit = lambda kind: (get_limit(kind)[0], resource.RLIM_INFINITY)
sys.platform = "darwin"

from ottla.cli.main import main
code = main()
print("full syncs:", bool(synced), flush=True)
print("files:", get_limit(resource.RLIMIT_NOFILE)[0], flush=True)
sys.exit(code)
"""


@contextmanager
def broker_without_linux(data: Path) -> Iterator[tuple[str, list[str]]]:
    """Run a broker; give its address, and a list that gets what it says at its end."""
    command = [sys.executable, "-c", PROGRAM, "up", "--port", "0", "--data-dir", str(data)]
    said: list[str] = []
    with subprocess.Popen(
        ["/bin/sh", "-c", 'ulimit -Sn 256; exec "$@"', "sh", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        ready = READY.search(process.stdout.readline())
        try:
            assert ready is not None, process.communicate()[1]
            yield ready.group(1), said
        finally:
            process.terminate()
            output, errors = process.communicate(timeout=20)
        said += output.splitlines()
        assert "Traceback" not in errors, errors
        assert process.returncode == 0


def test_a_client_uses_it(tmp_path: Path) -> None:
    client = Confluent()
    values = [b"%d" % number * 1000 for number in range(500)]
    with broker_without_linux(tmp_path) as (servers, said), client.producer(servers) as producer:
        for value in values:
            producer.send("t", value)
        assert len(producer.flush()) == len(values)
    assert said == ["full syncs: True", "files: 10240"]
    with broker_without_linux(tmp_path) as (servers, _), client.consumer(servers) as consumer:
        consumer.assign({("t", 0): EARLIEST})
        assert [message.value for message in consumer.take(len(values))] == values


def test_what_only_linux_has_is_used_where_it_is_guarded() -> None:
    names = {name for words in LINUX_ONLY.values() for name in words.split()}
    modules = set(LINUX_ONLY)
    for path in ROOT.rglob("*.py"):
        place = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text())):
            used: set[str] = set()
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                used = {node.attr} & names if node.value.id in modules else set()
            elif isinstance(node, ast.ImportFrom) and node.module in modules:
                used = {each.name for each in node.names} & names
            assert used <= GUARDED.get(place, set()), place


WINDOWS = """
import sys
sys.platform = "win32"
from ottla.cli.main import main
sys.exit(main())
"""


def test_windows_gets_a_clear_message() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WINDOWS, "up", "--memory"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert re.search(r"runs on Linux and macOS.*WSL.*container", done.stderr, re.DOTALL)
