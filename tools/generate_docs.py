"""Writes the parts of docs/ that are made from the code: configuration and supported APIs.

python tools/generate_docs.py           write
python tools/generate_docs.py --check   exit 1 if something is not up to date
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "src"))

from ottla.broker.handlers import advertised  # noqa: E402
from ottla.config.accepted import (  # noqa: E402
    ACCEPTED,
    UNSUPPORTED,
    UNSUPPORTED_PREFIXES,
)
from ottla.config.broker import BROKER_SETTINGS  # noqa: E402
from ottla.config.consumer_group_settings import (  # noqa: E402
    CONSUMER_GROUPS,
    GROUP_SETTINGS,
    default_of,
)
from ottla.config.definition import MAX_INT, MAX_LONG, Setting, format_value  # noqa: E402
from ottla.config.group_settings import GROUPS, OFFSETS  # noqa: E402
from ottla.config.settings import IDENTITY, LOGS, NETWORK, TOPICS  # noqa: E402
from ottla.config.topic import SYNONYMS, TOPIC_SETTINGS  # noqa: E402
from ottla.wire.apis import API_INFO  # noqa: E402

CONFIGURATION = ROOT / "docs" / "configuration.md"
SUPPORTED_APIS = ROOT / "docs" / "supported-apis.md"
_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_TIMES = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))

_INTRODUCTION = """\
<!-- Made by tools/generate_docs.py from src/ottla/config: change it there. -->
# Configuration

Ottla takes Kafka's own names, types and defaults (those of Kafka 4.3), in a file
(`ottla broker --config server.properties`) or one by one (`--set num.partitions=3`). A name
that does not exist, or a value that is not allowed, ends the start with a message that says
so: nothing is ignored in silence.

Settings that are *dynamic* can be changed while the broker runs, with `kafka-configs` or any
admin client, for this broker or for the whole cluster. A value is taken from the first place
that has it: set for this broker while it runs, set for the cluster while it runs, the file,
the default.
"""

_TOPIC_INTRODUCTION = """\
## Topic settings

Set when a topic is created, or changed at any time. What a topic does not set it takes from
the broker setting in the last column; where there are several, from the first that is set.
"""

_GROUP_INTRODUCTION = """\
## Group settings

A group of the new protocol may have these of its own, made with `kafka-configs --entity-type
groups` or any admin client. What it does not have it takes from the broker setting in the last
column, whose `min` and `max` are the range.
"""

_ACCEPTED_INTRODUCTION = """\
## Accepted without effect

Ordinary files contain these. They are checked for type and range, and then nothing is done
with them.
"""


_APIS_INTRODUCTION = """\
<!-- Made by tools/generate_docs.py from src/ottla/broker/router.py: change it there. -->
# Supported APIs

What a broker advertises in ApiVersions, and serves. A request for anything else closes its
connection, as in Kafka; an ApiVersions request of an unknown version is answered in version 0
with UNSUPPORTED_VERSION, so that a newer client learns what there is.
"""


def supported_apis() -> str:
    """The whole of docs/supported-apis.md."""
    served = {key: (oldest, newest) for key, oldest, newest in advertised()}
    rows = [
        (str(key), API_INFO[key].name, f"{oldest} to {newest}")
        for key, (oldest, newest) in sorted(served.items())
    ]
    missing = ", ".join(info.name for key, info in sorted(API_INFO.items()) if key not in served)
    parts = [
        _APIS_INTRODUCTION,
        _table(("key", "API", "versions"), rows),
        "## Not served\n",
        f"{missing}.\n",
    ]
    return "\n".join(parts)


def configuration() -> str:
    """The whole of docs/configuration.md."""
    parts = [
        _INTRODUCTION,
        _TOPIC_INTRODUCTION,
        _topic_table(),
        "## Broker settings\n",
        "### Identity\n",
        _broker_table(IDENTITY),
        "### Network\n",
        _broker_table(NETWORK),
        "### Topics\n",
        _broker_table(TOPICS),
        "### Logs\n",
        _broker_table(LOGS),
        "### Groups\n",
        _broker_table(GROUPS),
        "### Groups of the new protocol\n",
        _broker_table(CONSUMER_GROUPS),
        "### Offsets\n",
        _broker_table(OFFSETS),
        "### Defaults of topic settings\n",
        "All of them are dynamic, and have the type and the range of the topic setting.\n",
        _defaults_table(),
        _GROUP_INTRODUCTION,
        _group_table(),
        _ACCEPTED_INTRODUCTION,
        _accepted_lists(),
        "## Refused\n",
        _refused(),
    ]
    return "\n".join(parts)


def _topic_table() -> str:
    rows = [
        (
            f"`{setting.name}`",
            _description(setting),
            setting.type,
            _default(setting),
            _allowed(setting),
            ", ".join(f"`{synonym.name}`" for synonym in SYNONYMS[setting.name]),
        )
        for setting in sorted(TOPIC_SETTINGS.values())
        if not setting.internal
    ]
    return _table(("setting", "", "type", "default", "allowed", "broker"), rows)


def _group_table() -> str:
    rows = [
        (f"`{setting.name}`", _description(setting), setting.type, f"`{default_of(setting.name)}`")
        for setting in GROUP_SETTINGS.values()
    ]
    return _table(("setting", "", "type", "broker"), rows)


def _broker_table(settings: Iterable[Setting]) -> str:
    rows = [
        (
            f"`{setting.name}`",
            _description(setting),
            setting.type,
            _default(setting),
            _allowed(setting),
            "" if setting.update == "read-only" else "yes",
        )
        for setting in sorted(settings)
    ]
    return _table(("setting", "", "type", "default", "allowed", "dynamic"), rows)


def _defaults_table() -> str:
    rows = []
    for name, synonyms in sorted(SYNONYMS.items()):
        if synonyms and not TOPIC_SETTINGS[name].internal:
            setting = BROKER_SETTINGS[synonyms[0].name]
            rows.append((f"`{setting.name}`", f"`{name}`", _default(setting)))
    return _table(("setting", "gives the topic setting", "default"), rows)


def _accepted_lists() -> str:
    reasons = dict.fromkeys(setting.doc for setting in ACCEPTED)
    return "\n".join(
        f"{reason}\n\n"
        + ", ".join(f"`{setting.name}`" for setting in ACCEPTED if setting.doc == reason)
        + "\n"
        for reason in reasons
    )


def _refused() -> str:
    names = ", ".join(f"`{name}`" for name in UNSUPPORTED)
    prefixes = ", ".join(f"`{prefix}*`" for prefix in UNSUPPORTED_PREFIXES)
    return (
        "Who sets one of these relies on what it does, so a broker that does not do it does not"
        f" start: {names}, {prefixes}.\n"
    )


def _description(setting: Setting) -> str:
    return setting.doc if setting.effective else f"{setting.doc} *Without effect.*"


def _allowed(setting: Setting) -> str:
    return "" if setting.validator is None else str(setting.validator)


def _default(setting: Setting) -> str:
    value = setting.default
    text = format_value(value)
    if text is None:
        return "not set"
    if not text:
        return "empty"
    if value in (MAX_LONG, MAX_INT):
        return "no limit"
    hint = _hint(setting.name, value) if isinstance(value, int) else ""
    return f"{text}{hint}"


def _hint(name: str, value: int) -> str:
    """The same in a larger unit, where it comes out even."""
    units = _TIMES if name.endswith(".ms") else _UNITS if "bytes" in name else ()
    for unit, size in units:
        if value >= size and value % size == 0:
            return f" ({value // size} {unit})"
    return ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or with --check compare them."""
    stale = 0
    for page, content in ((CONFIGURATION, configuration()), (SUPPORTED_APIS, supported_apis())):
        if "--check" not in arguments:
            page.write_text(content)
        elif not page.exists() or page.read_text() != content:
            print(f"{page.relative_to(ROOT)} is not up to date: run tools/generate_docs.py")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
