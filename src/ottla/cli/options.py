"""Options that several commands share, and how their values are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from cyclopts import Parameter

from ottla.admin.address import parse_addresses
from ottla.admin.client import Client
from ottla.cli.errors import UsageError
from ottla.cli.serve import parse_setting

DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"

BootstrapServer = Annotated[
    str,
    Parameter(
        name=("--bootstrap-server", "-b"),
        env_var="OTTLA_BOOTSTRAP_SERVERS",
        help="Brokers to ask first, as host:port, separated by commas.",
    ),
]
Json = Annotated[bool, Parameter(help="Print JSON, for programs.", show_default=False)]


def connect(bootstrap_server: str) -> Client:
    """A client of these brokers; it connects when it is first used."""
    try:
        return Client(parse_addresses(bootstrap_server))
    except ValueError as error:
        raise UsageError(f"--bootstrap-server: {error}") from None


def pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """The names and values of a repeated `name=value` option."""
    found = {}
    for text in texts:
        pair = parse_setting(text)
        if pair is None:
            raise UsageError(f"{option} {text!r} should be name=value")
        found[pair[0]] = pair[1]
    return found
