"""What the store has of a topic: its partitions, and the manifests and other objects of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from ottla.log.state.leader_epochs import EpochCache, EpochEntry
from ottla.log.store.checkpoints import CorruptCheckpoint
from ottla.model.ids import uuid_to_text
from ottla.ports import ObjectNotFound, StoredObject
from ottla.server.object_stores.blocking_store import BlockingStore, all_objects
from ottla.tier_reader.errors import DamagedObject, NoSuchTopic
from ottla.tier_reader.objects import read_object
from ottla.tier_reader.segment_chain import SegmentChain, build_chain, needs_lineage, newest
from ottla.tiered.layout import (
    LEADER_EPOCHS,
    LOG_START_OFFSET,
    MANIFEST,
    MAX_TOPIC_IN_KEY,
    decode_log_start,
    log_start_key,
    parse_object,
    parse_partition,
    parse_topic_directory,
    partition_prefix,
    topic_prefix,
)
from ottla.tiered.manifest import MAX_BYTES, BadManifest, Manifest, decode_manifest

_READERS: Final = 16
_FEW: Final = 4


class PartitionListing(NamedTuple):
    """All objects of a partition, and what its manifests say."""

    topic: str
    topic_id: bytes
    partition: int
    objects: dict[str, int]
    """The size of each object, by its name without the prefix of the partition."""
    manifests: tuple[Manifest, ...]
    damaged: tuple[DamagedObject, ...]
    """Manifests, or a log start offset, that cannot be read."""
    log_start_offset: int

    @property
    def prefix(self) -> str:
        """What the keys of the partition begin with."""
        return partition_prefix(self.topic, self.topic_id, self.partition)


def find_topic_id(store: BlockingStore, topic: str) -> bytes:
    """Return the id of the only topic with this name; raise NoSuchTopic if there is not one."""
    parsed = map(parse_topic_directory, store.directories(""))
    start = topic[:MAX_TOPIC_IN_KEY]
    found = [each.topic_id for each in parsed if each is not None and each.topic_start == start]
    if not found:
        raise NoSuchTopic(f"the store has nothing of a topic {topic}")
    if len(found) > 1:
        ids = ", ".join(map(uuid_to_text, found))
        raise NoSuchTopic(f"the store has several topics {topic}; choose one by its id: {ids}")
    return found[0]


def find_partitions(store: BlockingStore, topic: str, topic_id: bytes) -> list[int]:
    """Return the numbers of the partitions that have remote objects, sorted."""
    names = map(parse_partition, store.directories(topic_prefix(topic, topic_id)))
    return sorted(number for number in names if number is not None)


def list_partition(
    store: BlockingStore, topic: str, topic_id: bytes, partition: int
) -> PartitionListing:
    """Return what the store has of a partition. Manifests that vanish meanwhile are left out."""
    prefix = partition_prefix(topic, topic_id, partition)
    objects = list(all_objects(store, prefix))
    names = {each.key.removeprefix(prefix): each.size for each in objects}
    damaged: list[DamagedObject] = []
    manifests: list[Manifest] = []
    for found in _manifests(store, [each for each in objects if _is_manifest(each, prefix)]):
        if isinstance(found, DamagedObject):
            damaged.append(found)
        elif found is not None and (found.topic, found.topic_id) == (topic, topic_id):
            manifests.append(found)
    log_start_offset = 0
    if LOG_START_OFFSET in names:
        try:
            log_start_offset = _log_start(store, prefix)
        except DamagedObject as error:
            damaged.append(error)
    return PartitionListing(
        topic, topic_id, partition, names, tuple(manifests), tuple(damaged), log_start_offset
    )


def chain_of(store: BlockingStore, listing: PartitionListing) -> SegmentChain:
    """Return which segments of a partition are read for which offsets."""
    manifests = listing.manifests
    lineage: Sequence[EpochEntry] = ()
    if needs_lineage(manifests):
        latest = newest(manifests)
        try:
            lineage = EpochCache.decode(read_object(store, latest, LEADER_EPOCHS)).entries
        except CorruptCheckpoint as error:
            raise DamagedObject(latest.key(LEADER_EPOCHS), str(error)) from None
    return build_chain(manifests, listing.log_start_offset, lineage)


def _is_manifest(found: StoredObject, prefix: str) -> bool:
    parsed = parse_object(found.key.removeprefix(prefix))
    return parsed is not None and parsed.kind == MANIFEST


def _manifests(
    store: BlockingStore, objects: Sequence[StoredObject]
) -> Iterable[Manifest | DamagedObject | None]:
    def read(found: StoredObject) -> Manifest | DamagedObject | None:
        return _read_manifest(store, found)

    if len(objects) <= _FEW:
        return list(map(read, objects))
    with ThreadPoolExecutor(_READERS, thread_name_prefix="ottla-tier") as readers:
        return list(readers.map(read, objects))


def _read_manifest(store: BlockingStore, found: StoredObject) -> Manifest | DamagedObject | None:
    """Return a manifest, or what is wrong with it; None if it is gone."""
    if found.size > MAX_BYTES:
        return DamagedObject(found.key, f"{found.size} bytes are too many for a manifest")
    try:
        manifest = decode_manifest(store.get(found.key, 0, found.size))
    except ObjectNotFound:
        return None
    except BadManifest as error:
        return DamagedObject(found.key, str(error))
    if manifest.key() != found.key:
        return DamagedObject(found.key, f"it is the manifest of another segment, {manifest.key()}")
    return manifest


def _log_start(store: BlockingStore, prefix: str) -> int:
    key = log_start_key(prefix)
    try:
        return decode_log_start(store.get(key, 0, 64))
    except ObjectNotFound:
        return 0
    except ValueError as error:
        raise DamagedObject(key, str(error)) from None
