"""`ottla features`: show the features of the cluster, and change their levels."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from ottla.cli.errors import OK, UsageError
from ottla.cli.options import BootstrapServer, CommandConfig, Json, connect
from ottla.cli.output import Column, print_json, print_table
from ottla.client.features import UpgradeType, describe_features, update_features

features = App(name="features", help="Show the features of the cluster, or change their levels.")

Levels = Annotated[list[str], Parameter(name="--feature", help="Features and levels: name=level.")]
DryRun = Annotated[bool, Parameter(help="Only check whether it is possible.", show_default=False)]
_COLUMNS = [
    Column("feature"),
    Column("level", True),
    Column("lowest", True),
    Column("highest", True),
]


@features.command(sort_key=1)
def describe(
    *,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Show the level of each feature, and the levels that the broker supports."""
    with connect(bootstrap_server, command_config) as client:
        found = describe_features(client)
    if json:
        print_json([each._asdict() for each in found])
    else:
        print_table(
            _COLUMNS,
            [["-" if field is None else str(field) for field in each] for each in found],
            empty="The cluster has no features.",
        )
    return OK


@features.command(sort_key=2)
def upgrade(
    levels: Levels,
    *,
    dry_run: DryRun = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Raise levels of features. All nodes must support them."""
    return _update(levels, UpgradeType.UPGRADE, dry_run, bootstrap_server, command_config)


@features.command(sort_key=3)
def downgrade(
    levels: Levels,
    *,
    dry_run: DryRun = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Lower levels of features, if nothing is lost by it. Level 0 switches a feature off."""
    return _update(levels, UpgradeType.SAFE_DOWNGRADE, dry_run, bootstrap_server, command_config)


def _update(
    texts: list[str],
    upgrade_type: UpgradeType,
    dry_run: bool,
    bootstrap_server: str | None,
    command_config: CommandConfig,
) -> int:
    levels = dict(_parse(text) for text in texts)
    with connect(bootstrap_server, command_config) as client:
        update_features(client, levels, upgrade_type, validate_only=dry_run)
    for name, level in levels.items():
        print(f"{name}: {'could be' if dry_run else 'is now'} {level}")
    return OK


def _parse(text: str) -> tuple[str, int]:
    name, equals, level = text.rpartition("=")
    if not equals or not name or not level.isdecimal():
        raise UsageError(f"--feature {text!r} should be name=level")
    return name, int(level)
