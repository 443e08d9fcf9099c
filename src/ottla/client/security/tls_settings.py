"""TLS properties, with the names of Kafka's Java client (ssl.truststore.*, ssl.keystore.*) or of
librdkafka (ssl.ca.location, ssl.certificate.location, ssl.key.location).

Keys and certificates are PEM, in files or in the property itself (KIP-651). Java's key stores
(JKS, PKCS12) are refused with a message that shows how to convert them to PEM. Reading them
would need a library, and every client can use PEM.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.client.setting_error import SettingError

TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
TLS_PROPERTIES = frozenset(
    {
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.truststore.certificates",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
    }
)
_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_JCEKS_MAGIC = b"\xce\xce\xce\xce"
_DER_SEQUENCE = b"\x30"


@dataclass(frozen=True)
class Pem:
    """PEM text from the property `name`. Either `path` or `text` is set."""

    name: str
    path: str | None = None
    text: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.path or self.name


@dataclass(frozen=True)
class Tls:
    """The TLS settings of a connection. Without `trusted`, the system's CAs are trusted."""

    trusted: Pem | None = None
    certificate: Pem | None = None
    key: Pem | None = None
    key_password: str | None = field(default=None, repr=False)
    checks_certificate: bool = True
    checks_host: bool = True
    versions: tuple[str, ...] = TLS_VERSIONS


def tls_settings(properties: Mapping[str, str]) -> Tls:
    """Return the TLS settings of these properties. Raise SettingError that names a wrong one."""
    checks_certificate = _switch(properties, "enable.ssl.certificate.verification")
    certificate, key = _certificate_and_key(properties)
    return Tls(
        trusted=_trusted(properties),
        certificate=certificate,
        key=key,
        key_password=properties.get("ssl.key.password"),
        checks_certificate=checks_certificate,
        checks_host=checks_certificate and _checks_host(properties),
        versions=_versions(properties),
    )


def _trusted(properties: Mapping[str, str]) -> Pem | None:
    _refuse_store_type(properties, "ssl.truststore", _TRUSTSTORE_ADVICE)
    return (
        _inline(properties, "ssl.truststore.certificates")
        or _inline(properties, "ssl.ca.pem")
        or _file(properties, "ssl.truststore.location", _TRUSTSTORE_ADVICE)
        or _file(properties, "ssl.ca.location", _TRUSTSTORE_ADVICE, may_be_directory=True)
    )


def _certificate_and_key(properties: Mapping[str, str]) -> tuple[Pem | None, Pem | None]:
    _refuse_store_type(properties, "ssl.keystore", _KEYSTORE_ADVICE)
    certificate = (
        _inline(properties, "ssl.keystore.certificate.chain")
        or _inline(properties, "ssl.certificate.pem")
        or _file(properties, "ssl.keystore.location", _KEYSTORE_ADVICE)
        or _file(properties, "ssl.certificate.location", _KEYSTORE_ADVICE)
    )
    key = (
        _inline(properties, "ssl.keystore.key")
        or _inline(properties, "ssl.key.pem")
        or _file(properties, "ssl.key.location", _KEYSTORE_ADVICE)
    )
    if key is not None and certificate is None:
        raise SettingError(
            key.name, "there is a key, but no certificate: also set ssl.keystore.certificate.chain"
        )
    if certificate is not None and certificate.text is not None and key is None:
        raise SettingError(
            certificate.name, "there is a certificate, but no key: also set ssl.keystore.key"
        )
    return certificate, key


def _inline(properties: Mapping[str, str], name: str) -> Pem | None:
    text = properties.get(name, "")
    if not text:
        return None
    if "-----BEGIN" not in text:
        raise SettingError(name, "this is not PEM text: it should begin with -----BEGIN")
    return Pem(name, text=text)


def _file(
    properties: Mapping[str, str], name: str, advice: str, *, may_be_directory: bool = False
) -> Pem | None:
    path = properties.get(name, "")
    if not path:
        return None
    if may_be_directory and os.path.isdir(path):
        return Pem(name, path=path)
    try:
        with open(path, "rb") as file:
            start = file.read(len(_JKS_MAGIC))
    except OSError as error:
        raise SettingError(name, f"cannot read {path}: {error.strerror}") from None
    if start in (_JKS_MAGIC, _JCEKS_MAGIC) or start.startswith(_DER_SEQUENCE):
        raise SettingError(name, f"{path} is not PEM. {advice.format(path=path)}")
    return Pem(name, path=path)


def _refuse_store_type(properties: Mapping[str, str], store: str, advice: str) -> None:
    name = f"{store}.type"
    kind = properties.get(name, "PEM").strip().upper()
    if kind != "PEM":
        path = properties.get(f"{store}.location", "STORE")
        raise SettingError(name, f"{kind} is not supported; use PEM. {advice.format(path=path)}")


def _checks_host(properties: Mapping[str, str]) -> bool:
    name = "ssl.endpoint.identification.algorithm"
    algorithm = properties.get(name, "https").strip().lower()
    if algorithm not in ("https", "", "none"):
        raise SettingError(name, f"{algorithm!r} should be https or empty")
    return algorithm == "https"


def _versions(properties: Mapping[str, str]) -> tuple[str, ...]:
    name = "ssl.enabled.protocols"
    wanted = {part.strip() for part in properties.get(name, ",".join(TLS_VERSIONS)).split(",")}
    versions = tuple(version for version in TLS_VERSIONS if version in wanted)
    if not versions:
        raise SettingError(name, f"it should have at least one of {', '.join(TLS_VERSIONS)}")
    return versions


def _switch(properties: Mapping[str, str], name: str) -> bool:
    text = properties.get(name, "true").strip().lower()
    if text not in ("true", "false"):
        raise SettingError(name, f"{text!r} should be true or false")
    return text == "true"


_TRUSTSTORE_ADVICE = (
    "Convert it with `keytool -list -rfc -keystore {path} > ca.pem`, then set"
    " ssl.truststore.type=PEM and ssl.truststore.location=ca.pem."
)
_KEYSTORE_ADVICE = (
    "Convert it with `keytool -importkeystore -srckeystore {path} -destkeystore client.p12"
    " -deststoretype PKCS12` (unless it is PKCS12 already) and `openssl pkcs12 -in client.p12"
    " -out client.pem`, then set ssl.keystore.type=PEM and ssl.keystore.location=client.pem."
)
