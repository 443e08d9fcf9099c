"""A process with everything that it has started, whatever process group that is in."""

from __future__ import annotations

import psutil


def descendants(pid: int) -> list[psutil.Process]:
    """Return all processes that this one has started, directly or not, and that run now."""
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def kill_tree(pid: int) -> None:
    """End a process and everything that it has started with SIGKILL.

    Java and Spark's Python workers are in process groups of their own, so a signal to
    the group of the driver does not reach them.
    """
    found = descendants(pid)
    for process in [psutil.Process(pid)] if psutil.pid_exists(pid) else []:
        kill(process)
    while found:
        for process in found:
            kill(process)
        # A worker may have been forked while its parent was killed.
        found = [child for process in found for child in descendants(process.pid)]


def kill(process: psutil.Process) -> bool:
    """Send SIGKILL. Return False if the process has ended by itself."""
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return False
    return True


def has_ended(process: psutil.Process) -> bool:
    """Return True if the process does not run any more."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def is_java(process: psutil.Process) -> bool:
    """Return True for Java processes."""
    return _is_named(process, "java")


def is_python(process: psutil.Process) -> bool:
    """Return True for Python processes."""
    return _is_named(process, "python")


def _is_named(process: psutil.Process, name: str) -> bool:
    try:
        return str(process.name()).startswith(name)
    except psutil.NoSuchProcess:
        return False
