"""SASL properties, with the names of Kafka's Java client (sasl.mechanism, sasl.jaas.config) or of
librdkafka (sasl.mechanisms, sasl.username, sasl.password).

An OAUTHBEARER token is a property (sasl.oauthbearer.token) or a file
(sasl.oauthbearer.token.endpoint.url=file:///...). The file is read at each login, so that the
token can be replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.client.security.jaas import parse_jaas
from ottla.client.setting_error import SettingError

PLAIN = "PLAIN"
SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)
SASL_PROPERTIES = frozenset(
    {
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.jaas.config",
        "sasl.username",
        "sasl.password",
        "sasl.oauthbearer.token",
        "sasl.oauthbearer.token.endpoint.url",
    }
)
_EXTENSION = "extension_"
_TOKEN = "sasl.oauthbearer.token"
_TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"


@dataclass(frozen=True)
class Sasl:
    """A mechanism and its credentials: a user and password, or a token or its file."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    token_file: str = ""
    extensions: tuple[tuple[str, str], ...] = ()


def sasl_settings(properties: Mapping[str, str]) -> Sasl:
    """Return the SASL settings of these properties. Raise SettingError that names a wrong one."""
    mechanism = _mechanism(properties)
    given = _jaas_options(properties)
    if mechanism == OAUTHBEARER:
        return _bearer(properties, given)
    username = properties.get("sasl.username", given.get("username", ""))
    if not username:
        raise SettingError(
            "sasl.jaas.config",
            f"{mechanism} needs a user: set sasl.username and sasl.password, or"
            ' sasl.jaas.config to `... required username="..." password="...";`',
        )
    password = properties.get("sasl.password", given.get("password", ""))
    return Sasl(mechanism, username, password)


def _mechanism(properties: Mapping[str, str]) -> str:
    name = "sasl.mechanism"
    mechanism = properties.get(name, properties.get("sasl.mechanisms", "")).strip().upper()
    if mechanism in MECHANISMS:
        return mechanism
    known = ", ".join(MECHANISMS)
    if not mechanism:
        raise SettingError(name, f"it is missing: set it to one of {known}")
    raise SettingError(name, f"{mechanism} is not supported: use one of {known}")


def _jaas_options(properties: Mapping[str, str]) -> dict[str, str]:
    name = "sasl.jaas.config"
    try:
        return parse_jaas(properties[name]) if properties.get(name, "").strip() else {}
    except ValueError as error:
        raise SettingError(name, str(error)) from None


def _bearer(properties: Mapping[str, str], given: Mapping[str, str]) -> Sasl:
    extensions = tuple(
        (name.removeprefix(_EXTENSION), value)
        for name, value in given.items()
        if name.startswith(_EXTENSION)
    )
    if token := properties.get(_TOKEN, "").strip():
        return Sasl(OAUTHBEARER, token=token, extensions=extensions)
    if url := properties.get(_TOKEN_URL, ""):
        return Sasl(OAUTHBEARER, token_file=_local_path(url), extensions=extensions)
    raise SettingError(
        _TOKEN, f"OAUTHBEARER needs a token: set {_TOKEN}, or {_TOKEN_URL} to file:///PATH"
    )


def _local_path(url: str) -> str:
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path:
        raise SettingError(
            _TOKEN_URL,
            f"{url} should be file:///PATH: fetching tokens from a server is not supported",
        )
    return unquote(parts.path)
