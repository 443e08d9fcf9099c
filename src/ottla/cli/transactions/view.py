"""Transactional ids as text and as JSON."""

from __future__ import annotations

from ottla.cli.output import Column, JsonValue, print_headline, print_table
from ottla.cli.sizes import time_text
from ottla.client.transactions.transactional_ids import TransactionDescription, TransactionListing

LISTING_COLUMNS = [
    Column("transactional id"),
    Column("state"),
    Column("producer id", True),
    Column("coordinator", True),
]
_PARTITION_COLUMNS = [Column("topic"), Column("partition", True)]


def listing_row(listing: TransactionListing) -> list[str]:
    """Return an id of a list as the cells of LISTING_COLUMNS."""
    return [
        listing.transactional_id,
        listing.state,
        str(listing.producer_id),
        str(listing.coordinator),
    ]


def listing_as_json(listing: TransactionListing) -> dict[str, JsonValue]:
    """Return an id of a list as JSON."""
    return {
        "transactional_id": listing.transactional_id,
        "state": listing.state,
        "producer_id": listing.producer_id,
        "coordinator": listing.coordinator,
    }


def description_as_json(description: TransactionDescription) -> dict[str, JsonValue]:
    """Return an id and its transaction as JSON."""
    return {
        "transactional_id": description.transactional_id,
        "state": description.state,
        "producer_id": description.producer_id,
        "producer_epoch": description.producer_epoch,
        "coordinator": description.coordinator,
        "timeout_ms": description.timeout_ms,
        "started_ms": description.started_ms,
        "partitions": [str(partition) for partition in description.partitions],
    }


def print_description(description: TransactionDescription) -> None:
    """Print an id, and the partitions of its transaction."""
    facts = [
        description.transactional_id,
        description.state,
        f"producer {description.producer_id}",
        f"epoch {description.producer_epoch}",
        f"coordinator {description.coordinator}",
        f"timeout {description.timeout_ms} ms",
    ]
    if description.started_ms is not None:
        facts.append(f"started {time_text(description.started_ms)}")
    print_headline(facts)
    if description.partitions:
        rows = [[topic, str(index)] for topic, index in description.partitions]
        print_table(_PARTITION_COLUMNS, rows)
