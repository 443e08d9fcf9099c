"""`ottla transactions list` and `describe`: transactional ids and their transactions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Final

from cyclopts import Parameter

from ottla.cli.errors import OK, UsageError, tell
from ottla.cli.options import BootstrapServer, CommandConfig, Json, connect
from ottla.cli.output import print_json, print_table
from ottla.cli.times import duration_ms
from ottla.cli.transactions.view import (
    LISTING_COLUMNS,
    description_as_json,
    listing_as_json,
    listing_row,
    print_description,
)
from ottla.client.transactions.transactional_ids import (
    NO_DURATION,
    describe_transactions,
    list_transactions,
)

STATES: Final = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"),
    *("Dead", "PrepareEpochFence"),
)
_NO_TEXTS: list[str] = []
_NO_NUMBERS: list[int] = []
_NONE_FOUND = "There are no such transactional ids."


def list_(
    *,
    state: Annotated[
        list[str],
        Parameter(
            help=f"List only ids in this state: {', '.join(STATES)}. Repeatable.",
            show_default=False,
        ),
    ] = _NO_TEXTS,
    producer_id: Annotated[
        list[int],
        Parameter(help="List only ids with this producer id. Repeatable.", show_default=False),
    ] = _NO_NUMBERS,
    longer_than: Annotated[
        str | None,
        Parameter(help="List only transactions that take longer than this: 90s, 15m, 2h."),
    ] = None,
    name: Annotated[
        str | None,
        Parameter(help="List only ids that match this regular expression as a whole."),
    ] = None,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """List transactional ids. Without a terminal, print only their names, one per line."""
    longer_than_ms = NO_DURATION
    if longer_than is not None:
        longer_than_ms = duration_ms(longer_than, "--longer-than")
    with connect(bootstrap_server, command_config) as client:
        listings = list_transactions(
            client,
            states=_states(state),
            producer_ids=producer_id,
            duration_ms=longer_than_ms,
            pattern=name,
        )
    if json:
        print_json([listing_as_json(listing) for listing in listings])
    elif sys.stdout.isatty():
        print_table(LISTING_COLUMNS, list(map(listing_row, listings)), empty=_NONE_FOUND)
    else:
        for listing in listings:
            print(listing.transactional_id)
        if not listings:
            tell(_NONE_FOUND)
    return OK


def _states(given: Sequence[str]) -> list[str]:
    """Return states as Kafka spells them. Raise UsageError for one that does not exist."""
    known = {state.lower(): state for state in STATES}
    for word in given:
        if word.lower() not in known:
            raise UsageError(
                f"--state {word!r} is unknown; it should be one of {', '.join(STATES)}"
            )
    return [known[word.lower()] for word in given]


def describe(
    ids: Annotated[list[str], Parameter(name="--transactional-id", help="Transactional ids.")],
    *,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Show the state, producer, timeout and partitions of transactional ids."""
    with connect(bootstrap_server, command_config) as client:
        found = describe_transactions(client, ids)
    if json:
        print_json([description_as_json(description) for description in found])
    else:
        for description in found:
            print_description(description)
    return OK
