"""The result of `ottla topics alter`: what was changed, also when a part of it failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.cli.errors import FAILED, OK, complain
from ottla.cli.output import JsonValue, print_json
from ottla.client.cluster import Client
from ottla.client.configs import ConfigChange
from ottla.client.errors import ClientError, Refused
from ottla.client.topics.topics import alter_topic, check_partitions
from ottla.model.errors import ErrorCode


class Altered(NamedTuple):
    """What was changed in a topic, and the error that ended it, if any."""

    configs: bool
    partitions: bool
    error: ClientError | None


def alter_in_steps(
    client: Client, name: str, change: ConfigChange, partitions: int | None
) -> Altered:
    """Change settings, then the number of partitions: two requests, and one of them may fail.

    A number that the broker refuses is noticed before the settings are changed.
    """
    configs = False
    try:
        if change.to_set or change.to_delete:
            if partitions is not None:
                check_partitions(client, name, partitions)
            alter_topic(client, name, set_configs=change.to_set, delete_configs=change.to_delete)
            configs = True
        if partitions is not None:
            alter_topic(client, name, partitions=partitions)
    except ClientError as error:
        return Altered(configs, False, error)
    return Altered(configs, partitions is not None, None)


def report_altered(
    names: Sequence[str], results: Mapping[str, Altered], if_exists: bool, json: bool
) -> int:
    """Print what was changed in each topic. Return FAILED if something was not."""
    failed = False
    report: list[JsonValue] = []
    for name in dict.fromkeys(names):
        result = results.get(name)
        report.append(_as_json(name, result))
        if result is None:
            failed = True
            complain(f"topic {name}: not altered, because of the error before")
        elif result.error is None:
            _say(f"{name}: altered", json)
        elif if_exists and _does_not_exist(result):
            _say(f"{name}: does not exist", json)
        else:
            failed = True
            complain(f"{result.error}{_done_before(result)}")
    if json:
        print_json(report)
    return FAILED if failed else OK


def _say(text: str, json: bool) -> None:
    if not json:
        print(text)


def _done_before(result: Altered) -> str:
    return "; its settings were changed, its partitions were not" if result.configs else ""


def _does_not_exist(result: Altered) -> bool:
    error = result.error
    return isinstance(error, Refused) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _as_json(name: str, result: Altered | None) -> JsonValue:
    return {
        "name": name,
        "id": None,
        "altered": result is not None and result.error is None,
        "configs_altered": result is not None and result.configs,
        "partitions_altered": result is not None and result.partitions,
        "error": "not tried" if result is None else _text(result),
    }


def _text(result: Altered) -> str | None:
    return None if result.error is None else str(result.error)
