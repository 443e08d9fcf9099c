"""How a client's connections are protected: Kafka's four security protocols.

Plain data that can be pickled; its text shows no password, key or token. PEM files are named
here and read where the connection is made, as Kafka's clients do: they must be there on
every machine that connects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.admin.sasl_settings import SASL_PROPERTIES, Sasl, sasl_settings
from ottla.admin.setting_error import SettingError
from ottla.admin.tls_settings import TLS_PROPERTIES, Tls, tls_settings

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SECURITY_PROPERTIES = frozenset({"security.protocol"}) | TLS_PROPERTIES | SASL_PROPERTIES


@dataclass(frozen=True)
class Security:
    """The protocol of a connection; `tls` and `sasl` are there when the protocol has them."""

    protocol: str = "PLAINTEXT"
    tls: Tls | None = None
    sasl: Sasl | None = None


PLAINTEXT = Security()


def security_settings(properties: Mapping[str, str]) -> Security:
    """The security that these properties ask for; SettingError names a wrong one."""
    name = "security.protocol"
    protocol = properties.get(name, PLAINTEXT.protocol).strip().upper()
    if protocol not in SECURITY_PROTOCOLS:
        raise SettingError(name, f"{protocol!r} is none of {', '.join(SECURITY_PROTOCOLS)}")
    return Security(
        protocol,
        tls_settings(properties) if protocol.endswith("SSL") else None,
        sasl_settings(properties) if protocol.startswith("SASL") else None,
    )
