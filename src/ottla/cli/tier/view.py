"""The remote part of a topic as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.cli.output import Column, JsonValue, counted, print_headline, print_table
from ottla.cli.sizes import size_text, time_text
from ottla.cli.tier.source import LocalPart, TierSource
from ottla.model.ids import NO_TIMESTAMP, uuid_to_text
from ottla.tier_reader.findings import Finding
from ottla.tier_reader.segment_chain import ChainedSegment, SegmentChain

_MOST_SHOWN: Final = 50


class PartitionResult(NamedTuple):
    """A partition, and what was found in it."""

    partition: int
    chain: SegmentChain
    local: LocalPart | None
    findings: list[Finding]
    records: int | None = None
    """How many records were read, if they were."""

    @property
    def problems(self) -> int:
        """How many of the findings are problems."""
        return sum(found.is_problem for found in self.findings)

    @property
    def size(self) -> int:
        """The size of all objects of the segments."""
        return sum(each.manifest.total_size for each in self.chain.segments)


def print_heading(source: TierSource) -> None:
    """Print the topic and where its remote part is."""
    print_headline([source.topic, f"id {uuid_to_text(source.topic_id)}", f"tier {source.url}"])


def print_parts(results: Sequence[PartitionResult]) -> None:
    """Print for each partition which offsets are where, and their sizes."""
    columns = [
        Column("partition", True),
        Column("segments", True),
        Column("remote offsets"),
        Column("remote size", True),
    ]
    rows = [
        [
            str(each.partition),
            str(len(each.chain.segments)),
            _remote(each.chain),
            size_text(each.size),
        ]
        for each in results
    ]
    if any(each.local is not None for each in results):
        columns += [Column("local offsets"), Column("local size", True)]
        rows = [[*row, *_local(each.local)] for row, each in zip(rows, results, strict=True)]
    print_table(columns, rows)


def print_segments(results: Sequence[PartitionResult]) -> None:
    """Print each segment of each partition."""
    columns = [
        Column("partition", True),
        Column("start", True),
        Column("end", True),
        Column("size", True),
        Column("latest record", is_extra=True),
        Column("broker", True, is_extra=True),
        Column("id", is_id=True),
    ]
    rows = [
        [
            str(each.partition),
            str(segment.first_offset),
            str(segment.last_offset),
            size_text(segment.manifest.total_size),
            time_text(_known(segment.manifest.max_timestamp_ms)),
            str(segment.manifest.broker_id),
            uuid_to_text(segment.manifest.segment_id),
        ]
        for each in results
        for segment in each.chain.segments
    ]
    print_table(columns, rows)


def print_check(results: Sequence[PartitionResult]) -> None:
    """Print a line for each partition, then what was found."""
    columns = [
        Column("partition", True),
        Column("segments", True),
        Column("remote offsets"),
        Column("size", True),
    ]
    with_records = any(each.records is not None for each in results)
    columns += [Column("records", True)] if with_records else []
    rows = []
    for each in results:
        row = [str(each.partition), str(len(each.chain.segments)), _remote(each.chain)]
        row += [size_text(each.size)] + ([str(each.records or 0)] if with_records else [])
        rows.append([*row, counted(each.problems, "problem") if each.problems else "ok"])
    print_table([*columns, Column("result")], rows)
    _print_findings(results)


def description_as_json(source: TierSource, results: Sequence[PartitionResult]) -> JsonValue:
    """Return everything as JSON."""
    return {
        "topic": source.topic,
        "id": uuid_to_text(source.topic_id),
        "tier": source.url,
        "partitions": [_partition_as_json(each) for each in results],
    }


def _print_findings(results: Sequence[PartitionResult]) -> None:
    for is_problem, word in ((True, "problem"), (False, "note")):
        found = [
            (r.partition, f) for r in results for f in r.findings if f.is_problem == is_problem
        ]
        for partition, finding in found[:_MOST_SHOWN]:
            print(f"{word}: partition {partition}: {finding.text}")
            if finding.subject:
                print(f"  {finding.subject}")
        if len(found) > _MOST_SHOWN:
            rest = counted(len(found) - _MOST_SHOWN, word)
            print(f"and {rest} more; --json lists all of them")


def _remote(chain: SegmentChain) -> str:
    if not chain.segments:
        return "-"
    return f"{chain.segments[0].first_offset} to {chain.segments[-1].last_offset}"


def _local(local: LocalPart | None) -> list[str]:
    if local is None:
        return ["?", "?"]
    start, end = _local_start(local), local.offsets.latest
    known = size_text(local.size)
    if start is None or end is None:
        return ["?", known]
    return ["-" if start >= end else f"{start} to {end - 1}", known]


def _local_start(local: LocalPart) -> int | None:
    offsets = local.offsets
    return offsets.earliest if offsets.earliest_local is None else offsets.earliest_local


def _known(timestamp_ms: int) -> int | None:
    return None if timestamp_ms == NO_TIMESTAMP else timestamp_ms


def _partition_as_json(result: PartitionResult) -> JsonValue:
    local: JsonValue = None
    if result.local is not None:
        offsets = result.local.offsets
        local = {
            "log_start_offset": offsets.earliest,
            "start_offset": _local_start(result.local),
            "end_offset": None if offsets.latest is None else offsets.latest - 1,
            "latest_tiered_offset": offsets.latest_tiered,
            "bytes": result.local.size,
        }
    segments = result.chain.segments
    return {
        "partition": result.partition,
        "remote": {
            "start_offset": segments[0].first_offset if segments else None,
            "end_offset": segments[-1].last_offset if segments else None,
            "bytes": result.size,
            "records": result.records,
            "segments": [_segment_as_json(each) for each in segments],
        },
        "local": local,
        "problems": [_finding_as_json(each) for each in result.findings if each.is_problem],
        "notes": [_finding_as_json(each) for each in result.findings if not each.is_problem],
    }


def _segment_as_json(segment: ChainedSegment) -> JsonValue:
    manifest = segment.manifest
    return {
        "id": uuid_to_text(manifest.segment_id),
        "start_offset": manifest.start_offset,
        "end_offset": manifest.end_offset,
        "first_offset_read": segment.first_offset,
        "last_offset_read": segment.last_offset,
        "max_timestamp_ms": manifest.max_timestamp_ms,
        "broker_id": manifest.broker_id,
        "uploaded_at_ms": manifest.event_timestamp_ms,
        "objects": {kind: summary.size for kind, summary in manifest.objects.items()},
    }


def _finding_as_json(finding: Finding) -> JsonValue:
    return {"object": finding.subject or None, "text": finding.text}
