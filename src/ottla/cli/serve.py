"""`ottla up` and `ottla broker`: parse the command line and run a broker.

This module imports little, for the reason given in `main`. `parse_plainly` accepts the same
options as the full parser in `broker`. It returns None for anything else, so that only the
full parser has to explain mistakes.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from ottla.cli.errors import FAILED, INTERRUPTED, USAGE, complain

DEFAULT_PORT = 9092
DEFAULT_HOST = "127.0.0.1"
DEFAULT_DATA_DIR = "./ottla-data"
HIGHEST_PORT = 65535

_UP_VALUES = {
    "--port": "port",
    "--host": "host",
    "--data-dir": "data_dir",
    "--metrics-port": "metrics_port",
}
_BROKER_VALUES = {"--config": "config", "--metrics-port": "metrics_port"}


class Serve(NamedTuple):
    """A broker to run: its properties file, if any, and the settings that override it."""

    config: str | None
    settings: dict[str, str]
    memory: bool
    metrics_port: int | None = None


def up_request(
    port: int,
    host: str,
    data_dir: str,
    memory: bool,
    settings: dict[str, str],
    metrics_port: int | None = None,
) -> Serve:
    """Return the request of `ottla up` with these options. `settings` override the options."""
    shown_host = f"[{host}]" if ":" in host else host
    properties = {"listeners": f"PLAINTEXT://{shown_host}:{port}", "log.dirs": data_dir}
    return Serve(None, properties | settings, memory, metrics_port)


def parse_plainly(words: list[str]) -> Serve | None:
    """Return the request of an `up` or `broker` command line, or None if it is not a plain one."""
    command, *rest = words
    options: dict[str, str] = {}
    settings: dict[str, str] = {}
    known = _UP_VALUES if command == "up" else _BROKER_VALUES
    position = 0
    while position < len(rest):
        word, equals, value = rest[position].partition("=")
        position += 1
        if command == "up" and word == "--memory" and not equals:
            options["memory"] = "yes"
            continue
        if word != "--set" and (word not in known or known[word] in options):
            return None
        if not equals:
            if position == len(rest) or rest[position].startswith("-"):
                return None
            value = rest[position]
            position += 1
        if word != "--set":
            options[known[word]] = value
        elif not _add_setting(settings, value):
            return None
    return _up(options, settings) if command == "up" else _broker(options, settings)


def parse_setting(text: str) -> tuple[str, str] | None:
    """Return the name and value of `name=value`, or None if the text has another form."""
    name, equals, value = text.partition("=")
    return (name.strip(), value.strip()) if equals and name.strip() else None


def _add_setting(settings: dict[str, str], text: str) -> bool:
    pair = parse_setting(text)
    if pair is None:
        return False
    settings[pair[0]] = pair[1]
    return True


def _up(options: dict[str, str], settings: dict[str, str]) -> Serve | None:
    port = options.get("port", str(DEFAULT_PORT))
    metrics_port = options.get("metrics_port")
    if not _is_port(port) or not (metrics_port is None or _is_port(metrics_port)):
        return None
    host = options.get("host", DEFAULT_HOST)
    data_dir = options.get("data_dir", DEFAULT_DATA_DIR)
    chosen = None if metrics_port is None else int(metrics_port)
    return up_request(int(port), host, data_dir, "memory" in options, settings, chosen)


def _broker(options: dict[str, str], settings: dict[str, str]) -> Serve | None:
    metrics_port = options.get("metrics_port")
    if "config" not in options or not (metrics_port is None or _is_port(metrics_port)):
        return None
    chosen = None if metrics_port is None else int(metrics_port)
    return Serve(options["config"], settings, False, chosen)


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6 and int(text) <= HIGHEST_PORT


def serve(request: Serve) -> int:
    """Run the broker until it is stopped and return the exit code."""
    if request.memory and request.settings.get("log.dirs") != DEFAULT_DATA_DIR:
        complain("--memory and --data-dir exclude each other: --memory stores nothing on disk")
        return USAGE
    from ottla.config.definition import ConfigError
    from ottla.server.errors import StartupError
    from ottla.server.main import run

    try:
        properties = _properties(request)
        return run(
            properties,
            memory=request.memory,
            metrics_port=request.metrics_port,
            on_ready=lambda at, metrics_port: _announce(at, metrics_port, request),
        )
    except (ConfigError, StartupError) as error:
        complain(str(error))
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _properties(request: Serve) -> dict[str, str]:
    if request.config is None:
        return request.settings
    from ottla.config.definition import ConfigError
    from ottla.config.properties import parse_properties

    try:
        with open(request.config, encoding="utf-8") as file:
            return parse_properties(file.read()) | request.settings
    except OSError as error:
        raise ConfigError(f"cannot read {request.config}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{request.config} is not a properties file: {error}") from None


def _announce(bootstrap_servers: str, metrics_port: int | None, request: Serve) -> None:
    print(f"Ottla is ready at {bootstrap_servers}", flush=True)
    if metrics_port is not None:
        print(f"Metrics are at port {metrics_port}, path /metrics", flush=True)
    if sys.stderr.isatty():
        stored = (
            "data in memory only"
            if request.memory
            else f"data in {request.settings.get('log.dirs')}"
        )
        hint = "" if request.config else f"{stored}; "
        print(f"({hint}press Ctrl-C to stop)", file=sys.stderr)
