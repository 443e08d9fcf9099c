"""Options that several commands share, and the functions that parse them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, TypeVar

from cyclopts import Parameter

from ottla.cli.errors import DataError, UsageError
from ottla.cli.serve import parse_setting
from ottla.client.cluster import Client
from ottla.client.settings import SettingError, client_settings
from ottla.config.properties import parse_properties

T = TypeVar("T")
DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"

BootstrapServer = Annotated[
    str | None,
    Parameter(
        name=("--bootstrap-server", "-b"),
        env_var="OTTLA_BOOTSTRAP_SERVERS",
        help="Brokers to connect to first: host:port, separated by commas."
        f" [default: {DEFAULT_BOOTSTRAP_SERVER}]",
    ),
]
CommandConfig = Annotated[
    Path | None,
    Parameter(
        env_var="OTTLA_COMMAND_CONFIG",
        help="A .properties file with Kafka client settings, such as TLS, SASL and timeouts.",
    ),
]
Json = Annotated[bool, Parameter(help="Print JSON.", show_default=False)]


def connect(bootstrap_server: str | None, command_config: Path | None = None) -> Client:
    """Return a client for these brokers with the settings in the file. It connects on first use."""
    properties = client_properties(bootstrap_server, command_config)
    try:
        return client_settings(properties).connect()
    except SettingError as error:
        if error.name == "bootstrap.servers" and bootstrap_server is not None:
            raise UsageError(f"--bootstrap-server: {error.why}") from None
        raise UsageError(f"--command-config {command_config}: {error}") from None


def client_properties(
    bootstrap_server: str | None, command_config: Path | None = None
) -> dict[str, str]:
    """Return the Kafka client properties that these options give, without checking them."""
    properties = {} if command_config is None else _read_properties(command_config)
    if bootstrap_server is not None:
        properties["bootstrap.servers"] = bootstrap_server
    properties.setdefault("bootstrap.servers", DEFAULT_BOOTSTRAP_SERVER)
    return properties


def _read_properties(path: Path) -> dict[str, str]:
    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--command-config: cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"--command-config {path}: {error}") from None


def read_plan(path: Path, parse: Callable[[str], T]) -> T:
    """Return what a JSON file, or stdin for -, has for `ottla reassign` or an election."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        return parse(text)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise DataError(f"{path}: {error}") from None


def pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """Return the names and values of a repeated `name=value` option."""
    found = {}
    for text in texts:
        pair = parse_setting(text)
        if pair is None:
            raise UsageError(f"{option} {text!r} should be name=value")
        found[pair[0]] = pair[1]
    return found
