"""A network of its own for each node of a test's cluster, on Linux and for root only.

Each node lives in a network namespace. All of them are connected through one more namespace, the
router, and so is the test. Cutting one node off another is a rule of the router that drops their
packets silently, one direction at a time: connections stay open and carry nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

_CLIENT: Final = 0


class NetworkNamespaces:
    """The networks of nodes 1, 2, 3 and so on. `close` removes them."""

    def __init__(self, nodes: Sequence[int]) -> None:
        self._nodes = nodes
        self._net = 64 + os.getpid() % 128
        self._prefix = f"ott{os.getpid() % 100_000}"
        self._cuts: set[tuple[int, int]] = set()
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def address(self, node: int) -> str:
        """Return the address of a node, or of the test for 0."""
        return f"10.{self._net}.{node}.2"

    def command(self, node: int) -> list[str]:
        """Return the words before a command that is to run on a node."""
        return ["ip", "netns", "exec", self._name(node)]

    def cut(self, sender: int, receiver: int) -> None:
        """Drop what one node sends to another."""
        if (sender, receiver) not in self._cuts:
            self._cuts.add((sender, receiver))
            self._change_rule("add", sender, receiver)

    def cut_off(self, node: int) -> None:
        """Drop everything between one node and the others. The test reaches all of them."""
        for other in self._nodes:
            if other != node:
                self.cut(node, other)
                self.cut(other, node)

    def heal(self) -> None:
        """Connect all nodes again."""
        for sender, receiver in sorted(self._cuts):
            self._change_rule("del", sender, receiver)
        self._cuts.clear()

    def close(self) -> None:
        """Remove the networks."""
        for node in self._nodes:
            _run("ip", "netns", "del", self._name(node), check=False)
        _run("ip", "link", "del", f"{self._prefix}e{_CLIENT}", check=False)
        _run("ip", "netns", "del", self._router, check=False)

    # -- how they are made ---------------------------------------------------------------

    @property
    def _router(self) -> str:
        return f"{self._prefix}r"

    def _name(self, node: int) -> str:
        return f"{self._prefix}n{node}"

    def _change_rule(self, change: str, sender: int, receiver: int) -> None:
        between = ("from", self.address(sender), "to", self.address(receiver))
        self._in_router("ip", "rule", change, "blackhole", *between)

    def _in_router(self, *words: str) -> None:
        _run("ip", "netns", "exec", self._router, *words)

    def _make(self) -> None:
        _run("ip", "netns", "add", self._router)
        self._in_router("sysctl", "-qw", "net.ipv4.ip_forward=1")
        self._in_router("ip", "link", "set", "lo", "up")
        for node in self._nodes:
            _run("ip", "netns", "add", self._name(node))
            self._connect(node, self.command(node))
            _run(*self.command(node), "ip", "link", "set", "lo", "up")
        self._connect(_CLIENT, [])

    def _connect(self, node: int, inside: list[str]) -> None:
        """Make a cable between a node and the router, with addresses at both ends."""
        here, there = f"{self._prefix}e{node}", f"r{node}"
        router_address = f"10.{self._net}.{node}.1"
        _run(
            *inside, "ip", "link", "add", here,
            "type", "veth", "peer", "name", there, "netns", self._router,
        )  # fmt: skip
        _run(*inside, "ip", "addr", "add", f"{self.address(node)}/30", "dev", here)
        _run(*inside, "ip", "link", "set", here, "up")
        self._in_router("ip", "addr", "add", f"{router_address}/30", "dev", there)
        self._in_router("ip", "link", "set", there, "up")
        _run(*inside, "ip", "route", "add", f"10.{self._net}.0.0/16", "via", router_address)


def are_allowed() -> bool:
    """Return True if this machine lets the test make network namespaces."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("sysctl") is None:
        return False
    try:
        NetworkNamespaces([1]).close()
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _run(*words: str, check: bool = True) -> None:
    subprocess.run(words, check=check, capture_output=True, timeout=20)
