"""Broker addresses as text: `host:port` or `[::1]:9092`, separated by commas."""

from __future__ import annotations

from typing import NamedTuple

DEFAULT_PORT = 9092


class Address(NamedTuple):
    """The host and port of a broker. Its text is `host:port`."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(text: str) -> list[Address]:
    """Return the addresses of a bootstrap servers list. Raise ValueError that names a wrong one."""
    addresses = [_parse(item.strip()) for item in text.split(",") if item.strip()]
    if not addresses:
        raise ValueError("the list of bootstrap servers is empty: expected host:port, ...")
    return addresses


def _parse(item: str) -> Address:
    host, port = _split(item)
    if not host:
        raise ValueError(f"{item!r} has no host: expected host:port")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(
            f"{item!r} has no valid port: expected host:port with a port from 1 to 65535"
        )
    return Address(host, int(port))


def _split(item: str) -> tuple[str, str]:
    if item.startswith("["):
        host, _, rest = item[1:].partition("]")
        return host, rest.removeprefix(":") or str(DEFAULT_PORT)
    if item.count(":") > 1:
        raise ValueError(f"{item!r} is ambiguous: write an IPv6 address as [{item}]:{DEFAULT_PORT}")
    host, _, port = item.partition(":")
    return host, port or str(DEFAULT_PORT)
