"""`ottla configs`: show and change settings of topics, brokers and groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import App, Parameter

from ottla.cli.errors import OK, DataError, UsageError, tell
from ottla.cli.options import BootstrapServer, CommandConfig, Json, connect, pairs
from ottla.cli.output import Column, JsonValue, print_json, print_table
from ottla.client.cluster import Client
from ottla.client.cluster_description import describe_cluster
from ottla.client.configs import (
    ConfigChange,
    Resource,
    ResourceType,
    Setting,
    Source,
    alter_configs,
    describe_configs,
)

configs = App(name="configs", help="Show and change settings of topics, brokers and groups.")

_COLUMNS = [Column("setting"), Column("value"), Column("source", is_extra=True)]
_NONE: list[str] = []


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ResourceOptions:
    """The resource whose settings are meant. Exactly one must be given."""

    topic: Annotated[str | None, Parameter(help="The name of a topic.")] = None
    broker: Annotated[
        str | None, Parameter(help="The id of a broker, or `default` for all brokers.")
    ] = None
    group: Annotated[str | None, Parameter(help="The name of a consumer group.")] = None

    def resource(self) -> Resource:
        """Return the given resource. Raise UsageError if there is none, or more than one."""
        given = [
            Resource(kind, name)
            for kind, name in (
                (ResourceType.TOPIC, self.topic),
                (ResourceType.BROKER, self.broker),
                (ResourceType.GROUP, self.group),
            )
            if name is not None
        ]
        if len(given) != 1:
            raise UsageError(f"give {'only ' if given else ''}one of --topic, --broker and --group")
        kind, name = given[0]
        if kind == ResourceType.BROKER:
            return Resource(kind, _broker_name(name))
        return given[0]


def _broker_name(text: str) -> str:
    if text == "default":
        return ""
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"--broker {text!r} should be the id of a broker, or `default`")
    return text


_NO_RESOURCE = ResourceOptions()


@configs.command(sort_key=1)
def describe(
    *,
    of: ResourceOptions = _NO_RESOURCE,
    all: Annotated[
        bool,
        Parameter(
            help="Show all settings, not only those that somebody set.",
            show_default=False,
        ),
    ] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Show the settings of a topic, a broker or a group, and where each value comes from."""
    resource = of.resource()
    with connect(bootstrap_server, command_config) as client:
        _check_broker(client, resource)
        settings = _described(client, resource)
    shown = [setting for setting in settings if all or _was_set(setting, resource)]
    if json:
        print_json([_as_json(setting) for setting in shown])
    else:
        rows = [[each.name, _value(each), each.source.name] for each in shown]
        empty = f"All settings of {resource} have their defaults. To see them, add --all."
        print_table(_COLUMNS, rows, empty=empty)
    return OK


@configs.command(sort_key=2)
def alter(
    *,
    of: ResourceOptions = _NO_RESOURCE,
    set: Annotated[
        list[str],
        Parameter(
            name=("--set", "--config"),
            help="A setting as name=value, such as retention.ms=3600000. Repeatable.",
            show_default=False,
        ),
    ] = _NONE,
    delete: Annotated[
        list[str],
        Parameter(
            name=("--delete", "--delete-config"),
            help="A setting to reset to its default. Repeatable.",
            show_default=False,
        ),
    ] = _NONE,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Change settings of a topic, a broker or a group. If one is refused, none is changed."""
    resource = of.resource()
    change = ConfigChange(pairs(set, "--set"), delete)
    _check_change(change)
    with connect(bootstrap_server, command_config) as client:
        _check_broker(client, resource)
        deadline = client.deadline(f"changing settings of {resource}")
        client.retry(
            lambda: alter_configs(client, resource, change, deadline),
            deadline,
            harmless_twice=False,
        )
    tell(f"Settings of {resource} changed: {', '.join([*change.to_set, *change.to_delete])}")
    return OK


def _check_broker(client: Client, resource: Resource) -> None:
    """Raise DataError if there is no such broker. The client would wait for it otherwise."""
    if resource.kind == ResourceType.BROKER and resource.name:
        known = [str(broker.broker_id) for broker in describe_cluster(client).brokers]
        if resource.name not in known:
            raise DataError(f"there is no broker {resource.name}; there are {', '.join(known)}")


def _check_change(change: ConfigChange) -> None:
    if not change.to_set and not change.to_delete:
        raise UsageError("nothing to change: give --set or --delete")
    for name in change.both:
        raise UsageError(f"{name} is both set and deleted")


def _described(client: Client, resource: Resource) -> list[Setting]:
    deadline = client.deadline(f"describing settings of {resource}")
    found = client.retry(
        lambda: describe_configs(client, [resource], deadline), deadline, harmless_twice=True
    )
    return found[resource]


def _was_set(setting: Setting, resource: Resource) -> bool:
    """Return True if somebody set it. A cluster begins with some defaults of all its brokers."""
    if setting.source == Source.DYNAMIC_DEFAULT_BROKER_CONFIG and resource.name:
        return setting.value != setting.default
    return setting.source not in (Source.DEFAULT_CONFIG, Source.UNKNOWN)


def _value(setting: Setting) -> str:
    if setting.is_sensitive:
        return "(hidden)"
    return "(none)" if setting.value is None else setting.value


def _as_json(setting: Setting) -> JsonValue:
    return {
        "name": setting.name,
        "value": setting.value,
        "source": setting.source.name,
        "read_only": setting.is_read_only,
        "sensitive": setting.is_sensitive,
    }
