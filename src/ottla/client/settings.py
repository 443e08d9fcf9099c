"""Client settings, with the names of Kafka's client properties.

`ClientSettings` can be pickled and sent to another process, which makes its own client with
`connect`. Its repr shows no secret.

Only the properties in CLIENT_PROPERTIES are read here. Properties of producers and consumers
are read elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.client.address import parse_addresses
from ottla.client.cluster import DEFAULT_TIMEOUT_MS, Client
from ottla.client.security.settings import (
    PLAINTEXT,
    SECURITY_PROPERTIES,
    Security,
    security_settings,
)
from ottla.client.setting_error import SettingError

__all__ = ["CLIENT_PROPERTIES", "PLAINTEXT", "ClientSettings", "SettingError", "client_settings"]

CLIENT_PROPERTIES = SECURITY_PROPERTIES | {
    "bootstrap.servers",
    "metadata.broker.list",
    "client.id",
    "client.rack",
    "request.timeout.ms",
}
_MAX_TIMEOUT_MS = 2**31 - 1


@dataclass(frozen=True)
class ClientSettings:
    """All settings of a client's connections."""

    bootstrap_servers: str
    client_id: str = "ottla"
    client_rack: str = ""
    request_timeout_ms: int = DEFAULT_TIMEOUT_MS
    security: Security = PLAINTEXT

    def connect(self) -> Client:
        """Return a client with these settings. It connects on first use."""
        return Client(
            parse_addresses(self.bootstrap_servers),
            client_id=self.client_id,
            timeout_ms=self.request_timeout_ms,
            security=self.security,
        )


def client_settings(properties: Mapping[str, str]) -> ClientSettings:
    """Return the settings of these properties. Raise SettingError that names a wrong one."""
    defaults = ClientSettings(bootstrap_servers="")
    return ClientSettings(
        bootstrap_servers=_bootstrap_servers(properties),
        client_id=properties.get("client.id", defaults.client_id),
        client_rack=properties.get("client.rack", defaults.client_rack),
        request_timeout_ms=_timeout_ms(properties, defaults.request_timeout_ms),
        security=security_settings(properties),
    )


def _bootstrap_servers(properties: Mapping[str, str]) -> str:
    name = "bootstrap.servers"
    text = properties.get(name, properties.get("metadata.broker.list"))
    if text is None:
        raise SettingError(name, "it is missing: expected host:port, several separated by commas")
    try:
        parse_addresses(text)
    except ValueError as error:
        raise SettingError(name, str(error)) from None
    return text


def _timeout_ms(properties: Mapping[str, str], default: int) -> int:
    name = "request.timeout.ms"
    text = properties.get(name, str(default)).strip()
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= _MAX_TIMEOUT_MS):
        raise SettingError(name, f"{text!r} should be a number of milliseconds greater than 0")
    return int(text)
