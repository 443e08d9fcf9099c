"""`ottla tier`: what a topic has in the remote tier, and whether it is whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from cyclopts import App, Parameter

from ottla.cli.errors import FAILED, OK, complain
from ottla.cli.options import BootstrapServer, CommandConfig, Json
from ottla.cli.output import counted, print_json
from ottla.cli.tier.continuity import compare_with_local
from ottla.cli.tier.progress import byte_progress
from ottla.cli.tier.source import TierSource, find_tier, tier_errors
from ottla.cli.tier.view import (
    PartitionResult,
    description_as_json,
    print_check,
    print_heading,
    print_parts,
    print_segments,
)
from ottla.tier_reader.check import check_partition, is_deleted
from ottla.tier_reader.listing import PartitionListing
from ottla.tier_reader.verify import verify_segment

tier = App(name="tier", help="Show and check what topics have in the remote tier.")

Topic = Annotated[str, Parameter(help="A topic.")]
Tier = Annotated[
    str | None,
    Parameter(
        name="--tier",
        help="The store: file:./directory, s3://bucket/prefix, gs://bucket/prefix or"
        " az://container/prefix. Without --bootstrap-server, no broker is asked. Default: the"
        " brokers' remote.log.storage.url.",
    ),
]
TopicId = Annotated[
    str | None,
    Parameter(
        help="The topic's id, if the store has several topics with this name. Default: that of"
        " the topic in the cluster."
    ),
]


@tier.command(sort_key=1)
def describe(
    topic: Topic,
    *,
    segments: Annotated[
        bool, Parameter(help="Also list the segments.", show_default=False)
    ] = False,
    tier: Tier = None,
    topic_id: TopicId = None,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Show which offsets of a topic are in the tier and which on the brokers, and their sizes."""
    with tier_errors():
        source = find_tier(topic, tier, topic_id, bootstrap_server, command_config)
        results = [_checked(source, listing) for listing in source.listings()]
    if json:
        print_json(description_as_json(source, results))
        return OK
    print_heading(source)
    print_parts(results)
    if segments:
        print_segments(results)
    return OK


@tier.command(sort_key=2)
def check(
    topic: Topic,
    *,
    tier: Tier = None,
    topic_id: TopicId = None,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Check that no object and no offset is missing, without reading the data.

    It compares the manifests with a listing of the store, and with the offsets on the brokers. It
    also lists objects that belong to no segment. The exit code is 1 if there is a problem.
    """
    with tier_errors():
        source = find_tier(topic, tier, topic_id, bootstrap_server, command_config)
        results = [_checked(source, listing) for listing in source.listings()]
    return _report(source, results, json)


@tier.command(sort_key=3)
def verify(
    topic: Topic,
    *,
    tier: Tier = None,
    topic_id: TopicId = None,
    json: Json = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> int:
    """Read everything a topic has in the tier, and prove that it is whole.

    After the check of `ottla tier check`, it compares the CRC of each object and each batch,
    offsets, leader epochs, and each entry of each index. The exit code is 1 if there is a problem.
    """
    with tier_errors():
        source = find_tier(topic, tier, topic_id, bootstrap_server, command_config)
        listings = list(source.listings())
        total = sum(manifest.total_size for each in listings for manifest in each.manifests)
        with byte_progress(total, "verifying") as progress:
            results = [_verified(source, listing, progress) for listing in listings]
    return _report(source, results, json)


def _checked(source: TierSource, listing: PartitionListing) -> PartitionResult:
    chain, findings = check_partition(source.store, listing)
    local = source.local.get(listing.partition)
    findings += compare_with_local(chain, local)
    return PartitionResult(listing.partition, chain, local, findings)


def _verified(
    source: TierSource, listing: PartitionListing, progress: Callable[[int], None]
) -> PartitionResult:
    result = _checked(source, listing)
    known = set(result.findings)
    records = 0
    for manifest in listing.manifests:
        verified = verify_segment(source.store, manifest, progress)
        if verified.findings and is_deleted(source.store, manifest):
            continue  # retention, or a rewritten segment has replaced it
        records += verified.records
        result.findings.extend(found for found in verified.findings if found not in known)
    return result._replace(records=records)


def _report(source: TierSource, results: list[PartitionResult], json: bool) -> int:
    problems = sum(each.problems for each in results)
    if json:
        print_json(description_as_json(source, results))
    else:
        print_heading(source)
        print_check(results)
    if problems:
        complain(f"{source.topic} has {counted(problems, 'problem')} in {source.url}")
    return FAILED if problems else OK
