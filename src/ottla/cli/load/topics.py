"""Several topics in one load: `orders,users`, or a regular expression."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ottla.cli.errors import DataError, UsageError
from ottla.client.settings import client_settings
from ottla.client.topics.topics import list_topics

PLACE = "{topic}"
_TOPIC = "topic:"
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def is_several(text: str) -> bool:
    """Return whether the text names several topics: a list, or a regular expression."""
    return not _NAME.fullmatch(text)


def chosen_topics(text: str, there: Iterable[str], dead_letters: str | None = None) -> list[str]:
    """Return the topics that a list of names and regular expressions means.

    An expression must match the whole name. It never matches internal topics, nor topics that get
    the dead letters of these topics.
    """
    names = set(there)
    if dead_letters is not None and dead_letters.startswith(_TOPIC):
        names -= {placed(dead_letters.removeprefix(_TOPIC), name) for name in names}
    known = sorted(names)
    chosen: list[str] = []
    for word in (part.strip() for part in text.split(",")):
        if _NAME.fullmatch(word):
            chosen.append(word)
            continue
        pattern = _compiled(word)
        chosen += [name for name in known if pattern.fullmatch(name) and not name.startswith("__")]
    if not chosen:
        raise DataError(f"no topic matches {text!r}")
    return list(dict.fromkeys(chosen))


def topics_now(
    text: str, properties: Mapping[str, str], dead_letters: str | None = None
) -> list[str]:
    """Return the topics that the text means now; ask the brokers only for an expression."""
    expressions = [word for part in text.split(",") if not _NAME.fullmatch(word := part.strip())]
    if not expressions:
        return chosen_topics(text, ())
    for word in expressions:
        _compiled(word)  # a mistake is reported before the brokers are asked
    with client_settings(properties).connect() as client:
        there = [topic.name for topic in list_topics(client)]
        return chosen_topics(text, there, dead_letters)


def check_several(to: str, dead_letters: str | None, checkpoint: str | None) -> None:
    """Raise UsageError if an option that needs a place for each topic has one for all."""
    needed = {"--checkpoint": checkpoint}
    for name, value in {"--to": to, "--dead-letters": dead_letters}.items():
        needed[name] = value if value is not None and value.startswith("parquet:") else None
    for name, value in needed.items():
        if value is not None and PLACE not in value:
            raise UsageError(f"{name} {value!r} is for one topic: write {PLACE} in it")


def placed(text: str, topic: str) -> str:
    """Return an option for one topic: `delta:/lake/{topic}` becomes `delta:/lake/orders`."""
    return text.replace(PLACE, topic)


def _compiled(word: str) -> re.Pattern[str]:
    try:
        return re.compile(word)
    except re.error as error:
        raise UsageError(f"{word!r} is no topic name and no regular expression: {error}") from None
