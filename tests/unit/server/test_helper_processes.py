"""The helper process: its start and end, its tasks, and what happens if it fails."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from ottla.ports import TaskFailed
from ottla.server import helper_processes
from ottla.server.giving_way import BACKGROUND_NICENESS
from ottla.server.helper_lanes import HelperLanes
from ottla.server.helper_main import RESULT_HEAD
from ottla.server.helper_processes import HelperProcess

TIMEOUT_S = 30.0


def _linux_version() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])


TASKS = """
import os, signal, sys, time

def upper(data):
    return bytes(data).upper()

def pid(data):
    return b"%d" % os.getpid()

def scheduling(data):
    return b"%d %d" % (os.sched_getscheduler(0), os.nice(0))

def time_slice(data):
    with open("/proc/self/sched") as lines:
        found = [line.split()[-1] for line in lines if line.startswith("se.slice ")]
    return "".join(found).encode()

def session(data):
    with open("/proc/self/autogroup") as share:
        return b"%d %s" % (os.getsid(0), share.read().split()[-1].encode())

def group(data):
    return b"%d" % os.getpgid(0)

def files(data):
    return "\\n".join(os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
                     if os.path.exists(f"/proc/self/fd/{n}")).encode()

def modules(data):
    return "\\n".join(sys.modules).encode()

def fail(data):
    raise ValueError("no such thing")

def die(data):
    os.kill(os.getpid(), signal.SIGKILL)

def hang(data):
    open(bytes(data).decode(), "w").close()
    while True:
        time.sleep(60)
"""


class Loop:
    """Stands for the loop: is woken, and has results delivered."""

    def __init__(self) -> None:
        self._woken = threading.Semaphore(0)
        self.helpers = HelperProcess(self._woken.release)
        self.results: list[bytes | TaskFailed] = []

    def submit(self, name: str, data: bytes = b"") -> None:
        self.helpers.submit(f"some_tasks:{name}", data, self.results.append)

    def result(self) -> bytes | TaskFailed:
        """Wait for the next result."""
        assert self._woken.acquire(timeout=TIMEOUT_S)
        self.helpers.deliver()
        return self.results.pop(0)

    def run(self, name: str, data: bytes = b"") -> bytes | TaskFailed:
        self.submit(name, data)
        return self.result()


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loop]:
    (tmp_path / "some_tasks.py").write_text(TASKS)
    inherited = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), inherited]))
    made = Loop()
    yield made
    made.helpers.stop()


def wait_for(path: Path) -> None:
    """Wait until a task has made this file."""
    done = threading.Event()
    for _ in range(3000):
        if path.exists():
            return
        done.wait(0.01)
    raise AssertionError(f"{path} was never made")


def wait_until_ended(process: psutil.Process) -> None:
    """Wait until a process has ended, whether somebody has noticed that or not."""
    for _ in range(3000):
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not end")


def test_a_task_runs_in_another_process_which_serves_the_next_one_too(loop: Loop) -> None:
    assert loop.helpers.pid is None
    first, second = loop.run("pid"), loop.run("pid")
    assert first == second == b"%d" % (loop.helpers.pid or 0)
    assert first != b"%d" % os.getpid()


@pytest.mark.parametrize("size", [0, 1, 100, 5_000_000])
def test_any_size_of_data(loop: Loop, size: int) -> None:
    assert loop.run("upper", b"a" * size) == b"A" * size


def test_results_come_in_order_and_one_is_not_lost_behind_an_error(loop: Loop) -> None:
    for number in range(10):
        loop.submit("fail" if number == 3 else "upper", b"x%d" % number)
    results = [loop.result() for _ in range(10)]
    failure = results.pop(3)
    assert isinstance(failure, TaskFailed)
    assert "no such thing" in str(failure)
    assert results == [b"X%d" % number for number in range(10) if number != 3]


def test_an_unknown_task(loop: Loop) -> None:
    assert isinstance(loop.run("nothing"), TaskFailed)
    assert loop.run("upper", b"a") == b"A"


def test_a_process_that_dies_is_replaced(loop: Loop) -> None:
    before = loop.run("pid")
    assert isinstance(loop.run("die"), TaskFailed)
    after = loop.run("pid")
    assert isinstance(after, bytes)
    assert after != before


def test_a_process_that_is_killed_while_idle_is_replaced(loop: Loop) -> None:
    loop.run("pid")
    process = psutil.Process(loop.helpers.pid)
    process.kill()
    wait_until_ended(process)
    assert isinstance(loop.run("pid"), bytes)


def test_a_task_that_hangs_is_ended(loop: Loop, tmp_path: Path) -> None:
    loop.helpers = HelperProcess(loop.helpers._wake_loop, time_limit_s=1)
    loop.submit("hang", os.fsencode(tmp_path / "hangs"))
    loop.submit("upper", b"a")
    failure = loop.result()
    assert isinstance(failure, TaskFailed)
    assert "more than 1 s" in str(failure)
    assert loop.result() == b"A"


def test_stopping_ends_a_task_that_hangs(loop: Loop, tmp_path: Path) -> None:
    loop.submit("hang", os.fsencode(tmp_path / "hangs"))
    wait_for(tmp_path / "hangs")
    process = psutil.Process(loop.helpers.pid)
    loop.helpers.stop()
    assert not process.is_running()
    loop.helpers.deliver()


def test_it_ends_when_it_had_nothing_to_do(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper_processes, "IDLE_S", 0.01)
    loop.run("pid")
    if loop.helpers.pid is not None:
        psutil.Process(loop.helpers.pid).wait(TIMEOUT_S)
    assert loop.run("upper", b"a") == b"A"


def test_it_is_modest_and_inherits_nothing(loop: Loop, tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w") as secret:
        os.set_inheritable(secret.fileno(), True)
        opened = loop.run("files")
    assert isinstance(opened, bytes)
    assert b"secret" not in opened
    assert opened.count(b"socket:") == 1
    policy, niceness = (loop.run("scheduling") or b"").split()  # type: ignore[union-attr]
    assert int(policy) == os.SCHED_BATCH
    assert int(niceness) > os.nice(0)


@pytest.mark.skipif(
    not Path("/proc/self/sched").exists() or _linux_version() < (6, 12),
    reason="time slices of a thread are new in Linux 6.12",
)
def test_others_have_the_processor_as_soon_as_they_want_it(loop: Loop) -> None:
    assert loop.run("time_slice") in (b"100000000", b"")  # nothing if the system does not tell


@pytest.mark.skipif(
    not Path("/proc/self/autogroup").exists(), reason="sessions have no shares of the processor"
)
def test_work_in_the_background_has_a_small_share_of_the_processor(loop: Loop) -> None:
    loop.helpers = HelperProcess(loop.helpers._wake_loop, is_background=True)
    session, niceness = (loop.run("session") or b"").split()  # type: ignore[union-attr]
    assert int(session) == loop.helpers.pid
    assert int(niceness) == BACKGROUND_NICENESS
    assert loop.run("scheduling") == b"%d %d" % (os.SCHED_BATCH, os.nice(0) + BACKGROUND_NICENESS)


@pytest.mark.parametrize("is_background", [False, True])
def test_an_interrupt_at_the_terminal_does_not_reach_it(loop: Loop, is_background: bool) -> None:
    loop.helpers = HelperProcess(loop.helpers._wake_loop, is_background=is_background)
    assert loop.run("group") == b"%d" % (loop.helpers.pid or 0)


def test_a_result_that_comes_in_pieces(loop: Loop) -> None:
    ours, theirs = socket.socketpair()
    task = helper_processes._Task("upper", b"", loop.results.append)
    with ours, theirs:
        theirs.sendall(RESULT_HEAD.pack(True, 3)[:2])
        rest = threading.Thread(target=_send_late, args=(theirs, RESULT_HEAD.pack(True, 3)[2:]))
        rest.start()
        deadline = time.monotonic() + TIMEOUT_S
        assert loop.helpers._exchange(ours, task, deadline) == b"abc"
        rest.join()


def _send_late(channel: socket.socket, head: bytes) -> None:
    """Send the rest of a result after the task has come, one byte after the other."""
    channel.recv(1024)
    for byte in head + b"abc":
        channel.send(bytes([byte]))


def test_it_imports_little(loop: Loop) -> None:
    modules = loop.run("modules")
    assert isinstance(modules, bytes)
    names = modules.decode().split()
    assert not {"socket", "cramjam", "ottla.broker", "ottla.wire", "subprocess"} & set(names)


def test_too_much_is_refused(loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper_processes, "MAX_BYTES", 10)
    loop.submit("upper", b"a" * 100)  # one alone may have any size
    with pytest.raises(TaskFailed):
        loop.submit("upper", b"a")
    assert loop.result() == b"A" * 100
    assert loop.run("upper", b"a") == b"A"


def test_it_ends_by_itself_when_the_broker_is_gone(loop: Loop) -> None:
    loop.run("pid")
    process = psutil.Process(loop.helpers.pid)
    assert loop.helpers._socket is not None
    loop.helpers._socket.shutdown(2)
    wait_until_ended(process)


@pytest.mark.usefixtures("loop")
def test_each_lane_has_a_process_of_its_own() -> None:
    woken = threading.Semaphore(0)
    lanes = HelperLanes(woken.release)
    try:
        results: dict[str, bytes | TaskFailed] = {}
        for name, lane in (("first", ""), ("second", "cleaner-0"), ("third", "cleaner-0")):
            take = partial(results.__setitem__, name)
            lanes.submit("some_tasks:pid", b"", take, lane)
        while len(results) < 3:
            assert woken.acquire(timeout=TIMEOUT_S)
            lanes.deliver()
        assert results["first"] != results["second"] == results["third"]
        assert set(lanes.pids) == {"", "cleaner-0"}
    finally:
        lanes.stop()
    assert lanes.pids == {}
