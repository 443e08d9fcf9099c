"""A proof that a remote segment is whole: everything is read and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ottla.log.segment.txn_index import AbortedTxn
from ottla.log.state.leader_epochs import EpochCache
from ottla.log.state.producer_snapshot import decode_snapshot
from ottla.ports import ObjectNotFound
from ottla.records.checksum import crc32c
from ottla.server.object_stores.blocking_store import BlockingStore
from ottla.tier_reader.aborted_ranges import parse_txn_index
from ottla.tier_reader.batch_stream import batches_in
from ottla.tier_reader.errors import DamagedObject
from ottla.tier_reader.findings import Finding, problem
from ottla.tier_reader.index_lookup import offset_entries, time_entries
from ottla.tier_reader.log_verification import LogVerification
from ottla.tier_reader.objects import read_in_pieces, read_object
from ottla.tiered.layout import INDEX, LEADER_EPOCHS, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX
from ottla.tiered.manifest import Manifest


class SegmentVerification(NamedTuple):
    """What was read of a segment, and what is wrong with it."""

    batches: int
    records: int
    findings: list[Finding]


def verify_segment(
    store: BlockingStore, manifest: Manifest, progress: Callable[[int], None]
) -> SegmentVerification:
    """Read all objects of a segment; `progress` is called with numbers of bytes."""
    findings: list[Finding] = []
    contents = {}
    for kind in manifest.objects:
        if kind != LOG:
            try:
                contents[kind] = read_object(store, manifest, kind)
            except (DamagedObject, ObjectNotFound) as error:
                findings.append(problem(_reason(error), manifest.key(kind)))
            progress(manifest.objects[kind].size)
    parsed = _Parsed(manifest, contents, findings)
    verification = LogVerification(
        manifest, parsed.offset_entries, parsed.time_entries, parsed.aborted
    )
    log = _LogObject(store, manifest, progress)
    try:
        for batch in batches_in(log.pieces(), manifest, 0):
            findings += verification.add(batch)
    except (DamagedObject, ObjectNotFound) as error:
        findings.append(problem(_reason(error), manifest.key(LOG)))
    else:
        if log.crc != manifest.objects[LOG].crc32c:
            findings.append(problem("its CRC is not that in the manifest", manifest.key(LOG)))
        findings += [
            found for found in verification.finish() if not parsed.is_damaged(found.subject)
        ]
    return SegmentVerification(verification.batches, verification.records, findings)


class _LogObject:
    """The log object of a segment, and the CRC of what was read."""

    def __init__(
        self, store: BlockingStore, manifest: Manifest, progress: Callable[[int], None]
    ) -> None:
        self._store = store
        self._manifest = manifest
        self._progress = progress
        self.crc = 0

    def pieces(self) -> Iterator[bytes]:
        key = self._manifest.key(LOG)
        for piece in read_in_pieces(self._store, key, 0, self._manifest.size):
            self.crc = crc32c(piece, self.crc)
            self._progress(len(piece))
            yield piece


class _Parsed:
    """What the small objects of a segment say. Those that are missing or damaged say nothing."""

    def __init__(
        self, manifest: Manifest, contents: dict[str, bytes], findings: list[Finding]
    ) -> None:
        self._manifest = manifest
        self._findings = findings
        self._contents = contents
        self._damaged: set[str] = set()
        base = manifest.start_offset
        self.offset_entries: list[tuple[int, int]] = []
        self.time_entries: list[tuple[int, int]] = []
        self.aborted: list[AbortedTxn] = []
        self._parse(
            INDEX, lambda content: self.offset_entries.extend(offset_entries(content, base))
        )
        self._parse(
            TIME_INDEX, lambda content: self.time_entries.extend(time_entries(content, base))
        )
        self._parse(TXN_INDEX, lambda content: self.aborted.extend(parse_txn_index(content)))
        self._parse(SNAPSHOT, decode_snapshot)
        self._parse(LEADER_EPOCHS, self._parse_epochs)

    def is_damaged(self, subject: str) -> bool:
        """Return True if an object could not be read. That has been reported."""
        return subject in self._damaged

    def _parse(self, kind: str, parse: Callable[[bytes], object]) -> None:
        name = self._manifest.key(kind).rpartition("/")[2]
        if kind not in self._contents:
            self._damaged.add(name)
            return
        try:
            parse(self._contents[kind])
        except ValueError as error:
            self._damaged.add(name)
            self._findings.append(problem(str(error), name))

    def _parse_epochs(self, content: bytes) -> None:
        entries = EpochCache.decode(content).entries
        for entry in self._manifest.leader_epochs:
            if entry.epoch not in {each.epoch for each in entries}:
                raise ValueError(f"leader epoch {entry.epoch} of the manifest is not in it")


def _reason(error: DamagedObject | ObjectNotFound) -> str:
    return error.reason if isinstance(error, DamagedObject) else "the object is missing"
