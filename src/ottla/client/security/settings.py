"""The security settings of a client: Kafka's four security protocols.

The settings can be pickled, and their repr shows no password, key or token. They contain the
paths of PEM files. As in Kafka's clients, a file is read on the machine that connects, so it
must exist on each of these machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.client.security.sasl_settings import SASL_PROPERTIES, Sasl, sasl_settings
from ottla.client.security.tls_settings import TLS_PROPERTIES, Tls, tls_settings
from ottla.client.setting_error import SettingError

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SECURITY_PROPERTIES = frozenset({"security.protocol"}) | TLS_PROPERTIES | SASL_PROPERTIES


@dataclass(frozen=True)
class Security:
    """A security protocol. `tls` and `sasl` are None if the protocol does not use them."""

    protocol: str = "PLAINTEXT"
    tls: Tls | None = None
    sasl: Sasl | None = None


PLAINTEXT = Security()


def security_settings(properties: Mapping[str, str]) -> Security:
    """Return the security of these properties. Raise SettingError that names a wrong one."""
    name = "security.protocol"
    protocol = properties.get(name, PLAINTEXT.protocol).strip().upper()
    if protocol not in SECURITY_PROTOCOLS:
        raise SettingError(name, f"{protocol!r} should be one of {', '.join(SECURITY_PROTOCOLS)}")
    return Security(
        protocol,
        tls_settings(properties) if protocol.endswith("SSL") else None,
        sasl_settings(properties) if protocol.startswith("SASL") else None,
    )
