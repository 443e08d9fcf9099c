"""A check of a partition by its listing and its manifests: no data is read.

Every object that a manifest names is there and has its size, every offset between the first and
the last is in a segment, and what belongs to no segment is listed.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.ports import ObjectNotFound
from ottla.server.object_stores.blocking_store import BlockingStore
from ottla.tier_reader.errors import DamagedObject
from ottla.tier_reader.findings import Finding, problem, remark
from ottla.tier_reader.listing import PartitionListing, chain_of
from ottla.tier_reader.segment_chain import SegmentChain
from ottla.tiered.layout import LOG_START_OFFSET, MANIFEST, SegmentObject, parse_object
from ottla.tiered.manifest import Manifest

_EMPTY = SegmentChain((), (), ())


def check_partition(
    store: BlockingStore, listing: PartitionListing
) -> tuple[SegmentChain, list[Finding]]:
    """Return the segments that can be read, and what was found."""
    findings = [problem(error.reason, error.key) for error in listing.damaged]
    for manifest in listing.manifests:
        findings += _missing(store, listing, manifest)
    findings += _strangers(listing)
    try:
        chain = chain_of(store, listing)
    except DamagedObject as error:
        return _EMPTY, [*findings, problem(error.reason, error.key)]
    except ObjectNotFound:
        return _EMPTY, findings  # `_missing` has reported it
    for first, last in chain.gaps:
        findings.append(problem(f"offsets {first} to {last} are in no segment"))
    for manifest in chain.unused:
        findings.append(remark("nothing of this segment is read", manifest.key()))
    return chain, findings


def is_deleted(store: BlockingStore, manifest: Manifest) -> bool:
    """Return True if a segment was deleted after it was listed: it has no manifest any more."""
    try:
        store.size(manifest.key())
    except ObjectNotFound:
        return True
    return False


def _missing(
    store: BlockingStore, listing: PartitionListing, manifest: Manifest
) -> Iterator[Finding]:
    """Yield the objects of a segment that are missing or have another size.

    The store is asked again: a listing takes time, and the upload may have ended meanwhile.
    """
    for kind, summary in manifest.objects.items():
        key = manifest.key(kind)
        if listing.objects.get(key.removeprefix(listing.prefix)) == summary.size:
            continue
        try:
            size = store.size(key)
        except ObjectNotFound:
            if is_deleted(store, manifest):
                return
            yield problem("the object is missing", key)
            continue
        if size != summary.size:
            yield problem(f"the object has {size} bytes instead of {summary.size}", key)


def _strangers(listing: PartitionListing) -> Iterator[Finding]:
    """Yield the objects that belong to no segment."""
    known = {
        str(SegmentObject(manifest.start_offset, manifest.segment_id, kind))
        for manifest in listing.manifests
        for kind in (MANIFEST, *manifest.objects)
    }
    damaged = {error.key for error in listing.damaged}
    for name in listing.objects:
        if name in known or name == LOG_START_OFFSET or listing.prefix + name in damaged:
            continue
        if parse_object(name) is None:
            yield remark("this is not an object of the tier", name)
        else:
            yield remark("it has no manifest: an upload or a deletion has not finished", name)
