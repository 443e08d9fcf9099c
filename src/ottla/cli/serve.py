"""`ottla up` and `ottla broker`: parse the command line and run a broker.

This module imports little, for the reason given in `main`. `parse_plainly` accepts the same
options as the full parser in `broker`. It returns None for anything else, so that only the
full parser has to explain mistakes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

from ottla.cli.errors import FAILED, INTERRUPTED, USAGE, complain

DEFAULT_PORT = 9092
DEFAULT_HOST = "127.0.0.1"
DEFAULT_DATA_DIR = "./ottla-data"
HIGHEST_PORT = 65535
MOST_BROKERS = 64

_UP_VALUES = {
    "--port": "port",
    "--host": "host",
    "--advertise": "advertise",
    "--data-dir": "data_dir",
    "--metrics-port": "metrics_port",
    "--brokers": "brokers",
    "--tier": "tier",
}
_BROKER_VALUES = {"--config": "config", "--metrics-port": "metrics_port"}
_FLAGS = {"up": ("--memory", "--verbose"), "broker": ("--verbose",)}


class LocalCluster(NamedTuple):
    """Several brokers on this machine: `ottla up --brokers`."""

    brokers: int
    port: int
    host: str
    data_dir: str
    advertise: str | None = None


class Serve(NamedTuple):
    """A broker to run: its properties file, if any, and the settings that override it."""

    config: str | None
    settings: dict[str, str]
    memory: bool
    metrics_port: int | None = None
    verbose: bool = False
    cluster: LocalCluster | None = None
    """Where several brokers run. Then `settings` are for all of them."""


def _absolute(url: str) -> str:
    """Return a file: URL with an absolute path, so that other commands find the directory too."""
    path = url.removeprefix("file:")
    if path in (url, "") or path.startswith("/"):
        return url
    from os import getcwd
    from os.path import normpath
    from urllib.parse import quote

    return f"file:{normpath(f'{quote(getcwd())}/{path}')}"


def up_request(
    port: int,
    host: str,
    data_dir: str,
    memory: bool,
    settings: dict[str, str],
    metrics_port: int | None = None,
    advertise: str | None = None,
    verbose: bool = False,
    brokers: int = 1,
    tier: str | None = None,
) -> Serve:
    """Return the request of `ottla up` with these options. `settings` override the options."""
    if tier is not None:
        settings = {
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.url": _absolute(tier),
        } | settings
    if brokers > 1:
        cluster = LocalCluster(brokers, port, host, data_dir, advertise)
        return Serve(None, settings, memory, metrics_port, verbose, cluster)
    properties = {"listeners": f"PLAINTEXT://{bracketed(host)}:{port}", "log.dirs": data_dir}
    if advertise is not None:
        properties["advertised.listeners"] = f"PLAINTEXT://{advertised(advertise, port)}"
    return Serve(None, properties | settings, memory, metrics_port, verbose)


def bracketed(host: str) -> str:
    """Return a host as it is written before a port."""
    return f"[{host}]" if ":" in host else host


def advertised(address: str, port: int) -> str:
    """Return `HOST:PORT` of an address whose port may be missing."""
    host, colon, given = address.rpartition(":")
    if colon and given.isdigit() and (":" not in host or host.startswith("[")):
        return address
    return f"{address if address.startswith('[') else bracketed(address)}:{port}"


def is_address(text: str) -> bool:
    """Return whether a text is HOST, HOST:PORT or an IPv6 address, as `advertised` takes it."""
    import re

    forms = (
        r"[\w.-]+(:\d{1,5})?|\[[\da-fA-F:.]+\](:\d{1,5})?|[\da-fA-F:.]*:[\da-fA-F:.]*:[\da-fA-F:.]*"
    )
    return re.fullmatch(forms, text) is not None


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
        if word in _FLAGS[command] and not equals:
            options[word.removeprefix("--")] = "yes"
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
    brokers = options.get("brokers", "1")
    if not _is_port(port) or not (metrics_port is None or _is_port(metrics_port)):
        return None
    if "advertise" in options and not is_address(options["advertise"]):
        return None
    if not _is_port(brokers) or not 1 <= int(brokers) <= MOST_BROKERS:
        return None
    host = options.get("host", DEFAULT_HOST)
    data_dir = options.get("data_dir", DEFAULT_DATA_DIR)
    chosen = None if metrics_port is None else int(metrics_port)
    return up_request(
        int(port),
        host,
        data_dir,
        "memory" in options,
        settings,
        chosen,
        options.get("advertise"),
        "verbose" in options,
        int(brokers),
        options.get("tier"),
    )


def _broker(options: dict[str, str], settings: dict[str, str]) -> Serve | None:
    metrics_port = options.get("metrics_port")
    if "config" not in options or not (metrics_port is None or _is_port(metrics_port)):
        return None
    chosen = None if metrics_port is None else int(metrics_port)
    return Serve(options["config"], settings, False, chosen, "verbose" in options)


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6 and int(text) <= HIGHEST_PORT


def serve(request: Serve, when_ready: Callable[[], None] = lambda: None) -> int:
    """Run the broker until it is stopped and return the exit code."""

    def ready(bootstrap_servers: str) -> None:
        announce(bootstrap_servers, request.memory, _stored_in(request))
        when_ready()

    data_dir = request.cluster.data_dir if request.cluster else request.settings.get("log.dirs")
    if request.memory and data_dir != DEFAULT_DATA_DIR:
        complain("--memory and --data-dir exclude each other: --memory stores nothing on disk")
        return USAGE
    if _listens_everywhere_only(request):
        complain(
            "nobody can connect to 0.0.0.0 or ::, so clients need another address:"
            " add --advertise HOST, with a name or address of this machine that they can reach"
        )
        return USAGE
    from ottla.config.definition import ConfigError

    try:
        from ottla.server.errors import StartupError
        from ottla.server.main import run
    except ImportError as error:
        if sys.platform != "win32":
            raise
        complain(str(error))
        return FAILED

    try:
        if request.cluster is not None:
            from ottla.cli.local_cluster import serve_cluster

            return serve_cluster(request, request.cluster, when_ready)
        properties = _properties(request)
        if request.config is None and _has_several(properties["log.dirs"]):
            raise StartupError(
                f"{properties['log.dirs']} has the data of several brokers: start it with"
                " --brokers, or use another --data-dir"
            )
        if request.verbose:
            show_start(properties, memory=request.memory)
        return run(
            properties,
            memory=request.memory,
            metrics_port=request.metrics_port,
            on_ready=ready,
            on_metrics=announce_metrics,
        )
    except (ConfigError, StartupError) as error:
        complain(str(error))
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _listens_everywhere_only(request: Serve) -> bool:
    """Return whether `ottla up` listens on all interfaces and has no address for clients."""
    if request.config is not None or "advertised.listeners" in request.settings:
        return False
    everywhere = ("0.0.0.0", "::")
    if request.cluster is not None:
        return request.cluster.advertise is None and request.cluster.host in everywhere
    listener = request.settings["listeners"].rpartition(":")[0]
    return listener in [f"PLAINTEXT://{bracketed(host)}" for host in everywhere]


def _has_several(data_dir: str) -> bool:
    from os.path import exists

    return exists(f"{data_dir}/broker-1/meta.properties")


def show_start(properties: dict[str, str], *, memory: bool) -> None:
    """Print on stderr what starts, and with which settings."""
    import os

    import ottla

    python = ".".join(str(part) for part in sys.version_info[:3])
    print(f"Ottla {ottla.__version__}, Python {python}, process {os.getpid()}", file=sys.stderr)
    if memory:
        print("  nothing is stored on disk", file=sys.stderr)
    for name, value in sorted(properties.items()):
        if memory and name == "log.dirs":
            continue
        shown = "(hidden)" if "password" in name or "jaas" in name else value
        print(f"  {name}={shown}", file=sys.stderr)


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


def _stored_in(request: Serve) -> str | None:
    return None if request.config else request.settings.get("log.dirs")


def announce_metrics(port: int) -> None:
    """Print where metrics are served."""
    print(f"Metrics are at port {port}, path /metrics", flush=True)


def announce(bootstrap_servers: str, memory: bool, stored_in: str | None) -> None:
    """Print where clients connect, and for a person how to stop."""
    print(f"Ottla is ready at {bootstrap_servers}", flush=True)
    if sys.stderr.isatty():
        stored = "data in memory only" if memory else f"data in {stored_in}"
        hint = f"{stored}; " if memory or stored_in else ""
        print(f"({hint}press Ctrl-C to stop)", file=sys.stderr)
