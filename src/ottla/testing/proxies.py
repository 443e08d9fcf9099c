"""Small TCP proxies between the brokers of a test's cluster, which can cut them off each other.

Brokers reach each other through proxies, clients do not. A connection belongs to the broker that
opened it, which the client id of its first request shows. A cut connection stays open and carries
nothing, as over a network that loses everything; after `heal` it goes on.

A broker notices the end of another one by connections that are refused. So a proxy whose broker has
ended refuses connections too, until that broker listens again.
"""

from __future__ import annotations

import contextlib
import re
import selectors
import socket
import threading
from collections.abc import Callable

_HOST = "127.0.0.1"
_CHUNK = 256 * 1024
_LOOK_AGAIN_S = 0.01
_CLIENT_ID_AT = 14  # after the frame's size, api key, version, correlation id, and the id's length
_NODE_OF_CLIENT = re.compile(rb"(?:raft-client|broker)-(\d+)")


class _Link:
    """A connection through a proxy: from the broker that opened it to its target."""

    def __init__(self, opened: socket.socket, target: socket.socket, target_id: int) -> None:
        self.ends = (opened, target)
        self.target_id = target_id
        self.source_id: int | None = None
        """The broker that opened it, None until it has said who it is."""
        self.is_known = False
        self.waiting = (bytearray(), bytearray())
        """Bytes on their way to each of the ends."""
        self.is_cut = False
        self.is_closed = False

    def identify(self) -> None:
        """Find out who opened the connection, once its first request has come."""
        data = self.waiting[1]
        if self.is_known or len(data) < _CLIENT_ID_AT:
            return
        length = int.from_bytes(data[_CLIENT_ID_AT - 2 : _CLIENT_ID_AT], "big", signed=True)
        end = _CLIENT_ID_AT + max(0, length)
        if len(data) >= end:
            self.is_known = True
            found = _NODE_OF_CLIENT.match(data[_CLIENT_ID_AT:end])
            self.source_id = int(found[1]) if found else None


class _Proxy:
    """The port that stands for a broker's port."""

    def __init__(self, node_id: int, target_port: int) -> None:
        self.node_id = node_id
        self.target_port = target_port
        self.has_reached = False
        """Whether the broker has ever taken a connection."""
        self._holder = _bound_socket(0)  # it keeps the port while nobody listens
        self.port = int(self._holder.getsockname()[1])
        self.listener: socket.socket | None = None

    def listen(self) -> socket.socket:
        """Take connections from now on."""
        self.listener = _bound_socket(self.port)
        self.listener.listen()
        self.listener.setblocking(False)
        return self.listener

    def refuse(self) -> None:
        """Refuse connections from now on."""
        listener, self.listener = self.listener, None
        if listener is not None:
            listener.close()

    def close(self) -> None:
        self.refuse()
        self._holder.close()


def _bound_socket(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind((_HOST, port))
    return bound


class Proxies:
    """The proxies of a cluster, all on one thread. `close` ends them."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._proxies: list[_Proxy] = []
        self._refusing: list[_Proxy] = []
        self._links: set[_Link] = set()
        self._apart: frozenset[int] = frozenset()
        self._calls: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._is_closed = False
        self._waker, woken = socket.socketpair()
        woken.setblocking(False)
        self._selector.register(woken, selectors.EVENT_READ, (self._wake_up, woken))
        self._woken = woken
        self._thread = threading.Thread(target=self._run, name="ottla-proxies", daemon=True)

    def add(self, node_id: int, port: int) -> int:
        """Return the port of a new proxy for a broker's port; before `start`."""
        proxy = _Proxy(node_id, port)
        self._proxies.append(proxy)
        self._listen(proxy)
        return proxy.port

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Close all connections and stop."""
        self._is_closed = True
        self._waker.send(b"x")
        if self._thread.ident is not None:
            self._thread.join()
        for link in list(self._links):
            self._close(link)
        for proxy in self._proxies:
            proxy.close()
        for end in (self._waker, self._woken):
            end.close()
        self._selector.close()

    def partition(self, nodes: frozenset[int]) -> None:
        """Cut these brokers off all others."""
        self._call(lambda: self._set_apart(nodes))

    def heal(self) -> None:
        """Connect all brokers again."""
        self._call(lambda: self._set_apart(frozenset()))

    def _call(self, action: Callable[[], None]) -> None:
        """Run an action on the proxies' thread and wait for it."""
        done = threading.Event()
        with self._lock:
            self._calls += [action, done.set]
        self._waker.send(b"x")
        done.wait()

    # -- on the thread of the proxies ----------------------------------------------------

    def _run(self) -> None:
        while not self._is_closed:
            for key, events in self._selector.select(_LOOK_AGAIN_S if self._refusing else None):
                action, *arguments = key.data
                action(*arguments, events)
            if self._refusing:
                self._look_again()

    def _wake_up(self, woken: socket.socket, events: int) -> None:
        woken.recv(1000)
        with self._lock:
            calls, self._calls = self._calls, []
        for call in calls:
            call()

    def _set_apart(self, nodes: frozenset[int]) -> None:
        self._apart = nodes
        for link in list(self._links):
            self._follow(link)

    def _listen(self, proxy: _Proxy) -> None:
        self._selector.register(proxy.listen(), selectors.EVENT_READ, (self._accept, proxy))

    def _refuse(self, proxy: _Proxy) -> None:
        assert proxy.listener is not None
        self._selector.unregister(proxy.listener)
        proxy.refuse()
        self._refusing.append(proxy)

    def _look_again(self) -> None:
        """Let those proxies take connections again whose broker has come back."""
        for proxy in list(self._refusing):
            with contextlib.suppress(OSError):
                socket.create_connection((_HOST, proxy.target_port), timeout=5).close()
                self._refusing.remove(proxy)
                self._listen(proxy)

    def _accept(self, proxy: _Proxy, events: int) -> None:
        if proxy.listener is None:
            return
        opened, _ = proxy.listener.accept()
        try:
            target = socket.create_connection((_HOST, proxy.target_port), timeout=5)
        except OSError:
            opened.close()
            if proxy.has_reached:  # its broker has ended, and is not only starting
                self._refuse(proxy)
            return
        proxy.has_reached = True
        for end in (opened, target):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = _Link(opened, target, proxy.node_id)
        self._links.add(link)
        for number, end in enumerate(link.ends):
            self._selector.register(end, selectors.EVENT_READ, (self._move, link, number))

    def _move(self, link: _Link, number: int, events: int) -> None:
        """Read from one end, or write to it what waits for it."""
        if link.is_closed or link.is_cut:
            return
        try:
            if events & selectors.EVENT_READ:
                data = link.ends[number].recv(_CHUNK)
                if not data:
                    self._close(link)
                    return
                link.waiting[1 - number].extend(data)
        except BlockingIOError:
            return
        except OSError:
            self._close(link)
            return
        link.identify()
        self._follow(link)

    def _follow(self, link: _Link) -> None:
        """Send what waits, unless the connection is cut, and watch for what can be done next."""
        link.is_cut = link.source_id is not None and (
            (link.source_id in self._apart) != (link.target_id in self._apart)
        )
        if not link.is_cut and link.is_known:
            try:
                for end, waiting in zip(link.ends, link.waiting, strict=True):
                    with contextlib.suppress(BlockingIOError):
                        while waiting:
                            del waiting[: end.send(waiting)]
            except OSError:
                self._close(link)
                return
        for number, end in enumerate(link.ends):
            self._watch(link, number, end)

    def _watch(self, link: _Link, number: int, end: socket.socket) -> None:
        wanted = 0
        if not link.is_cut:
            if not link.waiting[1 - number] or not link.is_known:
                wanted |= selectors.EVENT_READ
            if link.waiting[number] and link.is_known:
                wanted |= selectors.EVENT_WRITE
        known = self._selector.get_map().get(end)
        if known is None and wanted:
            self._selector.register(end, wanted, (self._move, link, number))
        elif known is not None and not wanted:
            self._selector.unregister(end)
        elif known is not None and known.events != wanted:
            self._selector.modify(end, wanted, known.data)

    def _close(self, link: _Link) -> None:
        link.is_closed = True
        self._links.discard(link)
        for end in link.ends:
            if self._selector.get_map().get(end) is not None:
                self._selector.unregister(end)
            end.close()
