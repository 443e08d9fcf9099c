"""Listeners: the addresses that a broker binds, and the addresses that clients connect to.

A listener is `NAME://host:port`; several are separated by commas. An IPv6 address needs
brackets. An empty host means all interfaces. listener.security.protocol.map maps names to
security protocols. This broker supports only PLAINTEXT.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, cast

from ottla.config.definition import ConfigError, Values, split_list

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
DEFAULT_PROTOCOL_MAP = (
    "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"  # Kafka's order
)
_UNROUTABLE = ("0.0.0.0", "::")
_EXAMPLE = "write it as PLAINTEXT://host:9092"


class Endpoint(NamedTuple):
    """A named address. Host "" means all interfaces, port 0 means any free port."""

    listener_name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener_name}://{host}:{self.port}"


def bound(values: Values) -> tuple[Endpoint, ...]:
    """Return the listeners to bind, without those of controllers. Raise ConfigError."""
    endpoints = _for_clients("listeners", values)
    roles = cast(tuple[str, ...], values.get("process.roles") or ())
    if not endpoints and (not roles or "broker" in roles):
        raise ConfigError("listeners names no listener for clients")
    _check_bindable(endpoints)
    return endpoints


def of_controllers(values: Values) -> tuple[Endpoint, ...]:
    """Return the listeners on which other nodes reach this controller. Raise ConfigError."""
    controllers = _controller_names(values)
    endpoints = _all("listeners", values)
    return tuple(endpoint for endpoint in endpoints if endpoint.listener_name in controllers)


def advertised(values: Values) -> tuple[Endpoint, ...]:
    """Return the listeners for clients to connect to. Raise ConfigError."""
    listeners = bound(values)
    given = bool(values["advertised.listeners"])
    endpoints = _for_clients("advertised.listeners", values) if given else listeners
    _check_advertised(endpoints, listeners)
    return endpoints


def advertised_controllers(values: Values) -> tuple[Endpoint, ...]:
    """Return the listeners of controllers that other nodes reach at another address."""
    if not values["advertised.listeners"]:
        return ()
    controllers = {n.upper() for n in cast(tuple[str, ...], values["controller.listener.names"])}
    endpoints = _all("advertised.listeners", values)
    return tuple(endpoint for endpoint in endpoints if endpoint.listener_name in controllers)


def inter_broker_name(values: Values) -> str:
    """Return the name of the listener for other brokers. Raise ConfigError."""
    names = [endpoint.listener_name for endpoint in advertised(values)]
    given = cast(str | None, values["inter.broker.listener.name"])
    if given is None:
        default = cast(str, values["security.inter.broker.protocol"])
        return default if default in names or not names else names[0]
    if names and given.upper() not in names:  # a node of controllers only has no names
        raise ConfigError(
            f"Invalid value {given!r} for inter.broker.listener.name: it must be"
            f" one of {', '.join(names)}"
        )
    return given.upper()


def _for_clients(setting: str, values: Values) -> tuple[Endpoint, ...]:
    controllers = _controller_names(values)
    endpoints = _all(setting, values)
    return tuple(endpoint for endpoint in endpoints if endpoint.listener_name not in controllers)


def _controller_names(values: Values) -> set[str]:
    names = cast(tuple[str, ...] | None, values["controller.listener.names"]) or ()
    return {name.upper() for name in names}


def _all(setting: str, values: Values) -> tuple[Endpoint, ...]:
    controllers = _controller_names(values)
    protocols = dict.fromkeys(controllers, "PLAINTEXT")
    protocols.update(_parse_protocol_map(cast(str, values["listener.security.protocol.map"])))
    return _parse_endpoints(setting, cast(tuple[str, ...], values[setting]), protocols)


@lru_cache(maxsize=1)
def _parse_protocol_map(text: str) -> Mapping[str, str]:
    protocols: dict[str, str] = {}
    for entry in split_list(text):
        name, colon, protocol = entry.partition(":")
        if not colon or protocol.strip() not in SECURITY_PROTOCOLS:
            raise ConfigError(
                f"Invalid entry {entry!r} in listener.security.protocol.map: it must be"
                f" NAME:PROTOCOL with a protocol out of {', '.join(SECURITY_PROTOCOLS)}"
            )
        protocols[name.strip().upper()] = protocol.strip()
    return protocols


def _parse_endpoints(
    setting: str, entries: Iterable[str], protocols: Mapping[str, str]
) -> tuple[Endpoint, ...]:
    endpoints = tuple(_parse_endpoint(setting, entry, protocols) for entry in entries)
    names = [endpoint.listener_name for endpoint in endpoints]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{setting} has the listener name {name} more than once")
    return endpoints


def _parse_endpoint(setting: str, entry: str, protocols: Mapping[str, str]) -> Endpoint:
    name, separator, address = entry.partition("://")
    host, colon, port = address.rpartition(":")
    name = name.strip().upper()
    if not (name and separator and colon and port.isascii() and port.isdigit()):
        raise ConfigError(f"Invalid address {entry!r} in {setting}: {_EXAMPLE}")
    if int(port) > 65535:
        raise ConfigError(f"Invalid port {port} in {setting}: it must be between 0 and 65535")
    if name not in protocols:
        raise ConfigError(
            f"The listener {name} of {setting} has no security protocol: add"
            f" {name}:PLAINTEXT to listener.security.protocol.map"
        )
    return Endpoint(name, _parse_host(setting, entry, host), int(port), protocols[name])


def _parse_host(setting: str, entry: str, host: str) -> str:
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1]
    if ":" in host:
        raise ConfigError(
            f"Invalid address {entry!r} in {setting}: an IPv6 address stands in brackets,"
            f" as in PLAINTEXT://[::1]:9092"
        )
    return host


def _check_bindable(endpoints: Sequence[Endpoint]) -> None:
    ports: dict[tuple[int, bool], Endpoint] = {}
    for endpoint in endpoints:
        if endpoint.security_protocol != "PLAINTEXT":
            raise ConfigError(
                f"The listener {endpoint.listener_name} has the security protocol"
                f" {endpoint.security_protocol}: this broker has PLAINTEXT only"
            )
        # As in Kafka, an IPv4 and an IPv6 listener may share a port.
        key = (endpoint.port, ":" in endpoint.host)
        if endpoint.port != 0 and key in ports:
            raise ConfigError(f"The listeners {ports[key]} and {endpoint} have the same port")
        ports[key] = endpoint


def _check_advertised(advertised: Sequence[Endpoint], listeners: Sequence[Endpoint]) -> None:
    names = [listener.listener_name for listener in listeners]
    for endpoint in advertised:
        if endpoint.listener_name not in names:
            raise ConfigError(
                f"advertised.listeners has {endpoint.listener_name}, which is not in listeners"
                f" ({', '.join(names)})"
            )
        if endpoint.host in _UNROUTABLE:
            raise ConfigError(
                f"{endpoint} cannot be advertised to clients: no one can connect to"
                f" {endpoint.host}. Set advertised.listeners to a name or address they can reach"
            )
