"""Which source files a thread enters, and in which order: for the ways in docs/architecture.md.

A way is a numbered list under a heading "The way of ...". Each line begins with a file:
``1. `src/ottla/server/reactor.py`: ...``.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
_SECTION = re.compile(r"^### The way of (?P<name>.+?)$(?P<body>.*?)(?=^##|\Z)", re.M | re.S)
_STEP = re.compile(r"^\d+\. `(src/[^`]+\.py)`", re.M)
_SOURCES = f"{ROOT}/src/"


def ways() -> dict[str, list[str]]:
    """Return the files of each way on the page, in their order, by the name of the way."""
    text = PAGE.read_text(encoding="utf-8")
    return {found["name"]: _STEP.findall(found["body"]) for found in _SECTION.finditer(text)}


class EnteredFiles:
    """Notes the first call into each file under src.

    With `start`, it begins when a thread calls into that file, and notes that thread only. The
    files on its stack count as entered before. Imports do not count.
    """

    def __init__(self, start: str = "") -> None:
        self._start = f"{ROOT}/{start}" if start else ""
        self._entered: dict[str, None] = {}
        self._thread = 0

    def begin_again(self) -> None:
        """Forget everything when the start is entered again."""
        self._thread = 0

    @property
    def files(self) -> list[str]:
        """The files, as paths from the root of the repository."""
        return [name.removeprefix(f"{ROOT}/") for name in list(self._entered)]

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        """Note a call. This is the function for `sys.setprofile`."""
        if event != "call":
            return
        name = frame.f_code.co_filename
        if not self._thread:
            if self._start and name != self._start:
                return
            self._begin(frame)
        elif name in self._entered or (self._start and self._thread != threading.get_ident()):
            return
        if name.startswith(_SOURCES) and frame.f_code.co_name != "<module>":
            self._entered[name] = None

    def _begin(self, frame: FrameType) -> None:
        stack = []
        caller = frame.f_back
        while caller is not None:
            stack.append(caller.f_code.co_filename)
            caller = caller.f_back
        self._entered = {each: None for each in reversed(stack) if each.startswith(_SOURCES)}
        self._thread = threading.get_ident()

    @contextmanager
    def in_new_threads(self) -> Iterator[None]:
        """Note the calls of threads that are started meanwhile, for as long as they live."""
        threading.setprofile(self.note)
        try:
            yield
        finally:
            threading.setprofile(None)

    @contextmanager
    def in_this_thread(self) -> Iterator[None]:
        """Note the calls of this thread meanwhile."""
        before = sys.getprofile()
        sys.setprofile(self.note)
        try:
            yield
        finally:
            sys.setprofile(before)


def assert_way(name: str, entered: list[str], compiled: Collection[str] = ()) -> None:
    """Check that a way on the page has some files, all of which were entered in its order.

    Calls of functions in `compiled` files may be unseen: from Python 3.12 on, numba reports none.
    """
    listed = ways()[name]
    assert len(listed) > 3, f"the way of {name} is too short"
    missing = [file for file in listed if not (ROOT / file).exists()]
    assert not missing, f"{PAGE} names files that do not exist: {missing}"
    found = [file for file in entered if file in listed]
    expected = [file for file in listed if file in found or file not in compiled]
    lines = "\n".join(entered)
    assert found == expected, f"the way of {name} is another one:\n{lines}"
