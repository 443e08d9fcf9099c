"""Several brokers as child processes of this one: `ottla up --brokers`.

The parent imports the broker once and forks, so that the children start fast and share memory. A
child tells through a pipe that it is ready, or why not; the pipe closes when it ends. All
children hold the reading end of one more pipe, the lifeline. When the parent closes it, or dies,
the whole cluster stops: nobody waits for others to take over.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final, NamedTuple

READY: Final = "ready"
METRICS: Final = "metrics"
REFUSED: Final = "refused"


class BrokerStart(NamedTuple):
    """A broker to start."""

    node_id: int
    properties: dict[str, str]
    memory: bool
    metrics_port: int | None
    brokers: int = 1
    """How many brokers start with it, itself included: each is ready when it knows all of them."""


class _Child:
    """A broker as the parent sees it."""

    def __init__(self, node_id: int, pid: int, answers: int) -> None:
        self.node_id = node_id
        self.pid = pid
        self.answers = answers
        self.unread = b""
        self.address: str | None = None
        """Where clients connect, once it is ready."""

    def read(self) -> list[tuple[str, str]] | None:
        """Return what it tells, each with its kind; None when it has ended."""
        data = os.read(self.answers, 65536)
        *lines, self.unread = (self.unread + data).split(b"\n")
        if not data:
            return None
        told = (line.decode(errors="replace").partition(" ") for line in lines)
        return [(kind, text) for kind, _, text in told]

    def reap(self) -> str:
        """Return how it ended, "" if that was a clean stop."""
        os.close(self.answers)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if code == 0:
            return ""
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


class ForkedBrokers:
    """The brokers of a cluster on this machine. `run` starts them and waits until all stopped."""

    def __init__(
        self,
        on_ready: Callable[[Sequence[str]], None],
        on_metrics: Callable[[int], None],
        complain: Callable[[str], None],
    ) -> None:
        self._on_ready = on_ready
        self._on_metrics = on_metrics
        self._complain = complain
        self._children: list[_Child] = []
        self._lifeline: int | None = None
        self._signals = 0
        self._has_failed = False
        self._is_ready = False

    def run(self, starts: Sequence[BrokerStart]) -> int:
        """Start brokers and serve until SIGTERM or SIGINT; return the exit code.

        A second signal kills those that have not stopped.
        """
        _import_all()
        gc.collect()
        gc.freeze()
        wake_up, woken = os.pipe()
        for end in (wake_up, woken):
            os.set_blocking(end, False)
        signal.signal(signal.SIGTERM, self._note_signal)
        signal.signal(signal.SIGINT, self._note_signal)
        signal.set_wakeup_fd(woken)
        lifeline, self._lifeline = os.pipe()
        for start in starts:
            self._fork(start, lifeline)
        os.close(lifeline)
        self._watch(wake_up, list(self._children))
        signal.set_wakeup_fd(-1)
        return 1 if self._has_failed else 0

    def _note_signal(self, signum: int, frame: FrameType | None) -> None:
        self._signals += 1

    def _fork(self, start: BrokerStart, lifeline: int) -> None:
        answers, answer = os.pipe()
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            os.close(answer)
            self._children.append(_Child(start.node_id, pid, answers))
            return
        code = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
            assert self._lifeline is not None
            for end in (answers, self._lifeline, *(child.answers for child in self._children)):
                os.close(end)
            code = serve_child(start, lifeline, answer)
        except BaseException:  # nothing may return to the caller of fork
            import traceback

            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    # -- the parent ----------------------------------------------------------------------

    def _watch(self, wake_up: int, alive: list[_Child]) -> None:
        while alive:
            readable = select.select([wake_up, *(child.answers for child in alive)], [], [])[0]
            if wake_up in readable:
                os.read(wake_up, 100)
                if self._signals:
                    self._stop()
                if self._signals > 1:
                    for child in alive:
                        os.kill(child.pid, signal.SIGKILL)
            for child in [child for child in alive if child.answers in readable]:
                told = child.read()
                if told is None:
                    alive.remove(child)
                    self._ended(child)
                else:
                    for kind, text in told:
                        self._hear(child, kind, text)

    def _hear(self, child: _Child, kind: str, text: str) -> None:
        if kind == READY:
            child.address = text
            addresses = [each.address for each in self._children if each.address is not None]
            if len(addresses) == len(self._children):
                self._is_ready = True
                self._on_ready(addresses)
        elif kind == METRICS:
            self._on_metrics(int(text))
        elif self._lifeline is not None:
            self._fail(f"broker {child.node_id}: {text}")

    def _ended(self, child: _Child) -> None:
        how = child.reap()
        if self._lifeline is None:  # all stop
            self._has_failed |= bool(how)
            return
        message = f"broker {child.node_id} (process {child.pid}) has ended"
        message += f": {how}" if how else ""
        if self._is_ready:
            self._complain(message)
            self._has_failed |= bool(how)
        else:
            self._fail(f"{message} before the cluster was ready")

    def _fail(self, reason: str) -> None:
        self._complain(reason)
        self._has_failed = True
        self._stop()

    def _stop(self) -> None:
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            os.close(lifeline)


def serve_child(start: BrokerStart, lifeline: int, answer: int) -> int:
    """Run a broker in this process until the lifeline closes; return the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches parent and children
    from ottla.server.errors import StartupError
    from ottla.server.main import run

    def tell(kind: str, text: str) -> None:
        line = f"{kind} {text.replace(chr(10), '; ')}\n"
        try:
            os.write(answer, line.encode())
        except BrokenPipeError:
            return  # the parent has died: the lifeline stops this broker

    try:
        return run(
            start.properties,
            memory=start.memory,
            metrics_port=start.metrics_port,
            on_ready=lambda address: tell(READY, address),
            on_metrics=lambda port: tell(METRICS, str(port)),
            name=f"broker {start.node_id}",
            lifeline=lifeline,
            brokers=start.brokers,
        )
    except StartupError as error:
        tell(REFUSED, str(error))
        return 1


def _import_all() -> None:
    """Import what a broker of a cluster needs, before it forks."""
    from importlib import import_module

    for name in _IMPORTED:
        import_module(name)


_IMPORTED: Final = (
    "ottla.server.main",
    "ottla.server.connector",
    "ottla.network.peer",
    "ottla.controller.broker_membership",
    "ottla.controller.quorum.replies_to_wire",
    "ottla.broker.membership.broker_connections",
    "ottla.broker.controller_channel",
    "ottla.broker.controller_handlers.begin_quorum_epoch",
    "ottla.broker.controller_handlers.broker_heartbeat",
    "ottla.broker.controller_handlers.broker_registration",
    "ottla.broker.controller_handlers.fetch",
    "ottla.broker.controller_handlers.vote",
    "ottla.broker.membership.lifecycle",
    "ottla.broker.membership.quorum_membership",
    "ottla.broker.replicas.replica_fetchers",
    "ottla.raft.follower",
    "ottla.raft.requests",
    "ottla.raft.responses",
    "encodings.idna",
)
"""What a broker of a cluster imports until it is ready."""
