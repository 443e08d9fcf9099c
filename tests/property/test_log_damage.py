"""Hostile batches and damaged files are refused or cut. They never crash the log or corrupt it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.config.topic import LogConfig
from ottla.log.damage import DamagedLog
from ottla.log.log import Log
from ottla.log.state.leader_epochs import EpochCache
from ottla.log.state.producer_snapshot import CorruptSnapshot, decode_snapshot, encode_snapshot
from ottla.log.store.checkpoints import CorruptCheckpoint, decode_offsets
from ottla.log.store.meta_properties import CorruptMetaProperties, decode_meta
from ottla.model.errors import ApiError
from ottla.records.batch import seal
from tests.support.log import NOW, append_all, batch_of, names_in, new_log, read_all, reopen

CONFIGS = (
    LogConfig(),
    LogConfig(message_timestamp_type="LogAppendTime"),
    LogConfig(compression_type="lz4"),
    LogConfig(cleanup_policy=frozenset({"compact"})),
)
SIZE = len(batch_of(1))


@settings(max_examples=300, deadline=None)
@given(
    config=st.sampled_from(CONFIGS),
    codec=st.integers(0, 4),
    changes=st.lists(st.tuples(st.integers(0, 200), st.binary(min_size=1, max_size=8)), max_size=4),
    is_sealed=st.booleans(),
    cut=st.integers(0, 60),
)
@example(config=CONFIGS[0], codec=0, changes=[], is_sealed=True, cut=0)
def test_mutated_batches_are_taken_or_refused(
    config: LogConfig,
    codec: int,
    changes: list[tuple[int, bytes]],
    is_sealed: bool,
    cut: int,
) -> None:
    log = new_log(config)
    batch = batch_of(3, codec=codec, producer_id=5)
    for position, content in changes:
        start = position % len(batch)
        size = min(len(content), len(batch) - start)
        batch[start : start + size] = content[:size]
    if is_sealed:
        seal(batch, 0, len(batch))
    batch = batch[: len(batch) - cut]
    try:
        append_all(log, batch)
    except ApiError:
        assert log.log_end_offset == 0
        assert not log.has_queued
        assert not log.producers.entries
    else:
        assert [b.base_offset for b in read_all(log)] == [0]
        again = reopen(log)
        assert again.log_end_offset == log.log_end_offset
    assert append_all(log, batch_of(1)) == [log.log_end_offset - 1]


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=200))
def test_random_bytes_are_refused(content: bytes) -> None:
    log = new_log()
    buffer = bytearray(content)
    try:
        log.append_as_leader(buffer, memoryview(buffer), 0, len(buffer), 0, NOW)
    except ApiError:
        assert log.log_end_offset == 0
    else:
        raise AssertionError("random bytes with a matching CRC are not to be expected")


def filled() -> Log:
    config = LogConfig(segment_bytes=5 * SIZE, index_interval_bytes=SIZE, segment_index_bytes=512)
    log = new_log(config)
    for number in range(13):
        batch = batch_of(1, timestamp=NOW + number, producer_id=5, base_sequence=number)
        append_all(log, batch, leader_epoch=number // 4)
    return log


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_whatever_happens_to_the_files_a_prefix_remains(data: st.DataObject) -> None:
    log = filled()
    if data.draw(st.booleans(), label="closed"):
        log.close()
    files = log.resources.files
    for _ in range(data.draw(st.integers(1, 4), label="damages")):
        name = data.draw(st.sampled_from(names_in(log, "")), label="file")
        size = files.stat(log.path(name)).size
        position = data.draw(st.integers(0, size), label="position")
        kind = data.draw(st.sampled_from(["overwrite", "cut", "remove", "append"]))
        file = files.open(log.path(name), writable=True)
        if kind == "overwrite":
            file.pwritev([data.draw(st.binary(min_size=1, max_size=12))], position)
        elif kind == "cut":
            file.truncate(position)
        elif kind == "append":
            file.pwritev([data.draw(st.binary(min_size=1, max_size=40))], size)
        elif not name.endswith(".log"):
            files.unlink(log.path(name))
    notes: list[str] = []
    again = reopen(log, notes=notes)
    end = again.log_end_offset
    offsets = [batch.base_offset for batch in read_all(again)]
    assert offsets == sorted(set(offsets))
    # No CRC covers a batch's base offset: one that was changed, but rises, cannot be told.
    if end <= 13:
        assert offsets == list(range(again.log_start_offset, end))
        for offset in offsets:
            found = again.offset_for_timestamp(NOW + offset)
            assert found is not None
            assert found.offset == offset
    assert append_all(again, batch_of(1, timestamp=NOW + 99)) == [end]
    again.close()
    assert reopen(again, is_clean=True).log_end_offset == end + 1


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_whatever_happens_to_closed_files_only_the_log_is_damaged(data: st.DataObject) -> None:
    log = filled()
    log.close()
    files = log.resources.files
    for _ in range(data.draw(st.integers(1, 4), label="damages")):
        name = data.draw(st.sampled_from(names_in(log, "")), label="file")
        size = files.stat(log.path(name)).size
        position = data.draw(st.integers(0, size), label="position")
        file = files.open(log.path(name), writable=True)
        if data.draw(st.booleans(), label="cut"):
            file.truncate(position)
        else:
            file.pwritev([data.draw(st.binary(min_size=1, max_size=12))], position)
    operations: dict[str, Callable[[Log], object]] = {
        "read": lambda log: [
            log.read(offset, 1, log.high_watermark, at_least_one=True)
            for offset in range(log.log_start_offset, min(log.log_end_offset, 20))
        ],
        "available": lambda log: [log.bytes_available(o, 12) for o in range(14)],
        "timestamp": lambda log: [log.offset_for_timestamp(NOW + o) for o in range(14)],
        "largest": lambda log: log.max_timestamp(),
        "retention": lambda log: log.delete_old_segments(NOW + 10**9, 1),
        "truncate": lambda log: log.truncate_to(data.draw(st.integers(0, 13))),
        "append": lambda log: append_all(log, batch_of(1)),
        "roll": lambda log: log.roll(NOW),
    }
    try:
        again = reopen(log, is_clean=True)
        for _ in range(data.draw(st.integers(1, 6), label="operations")):
            name = data.draw(st.sampled_from(sorted(operations)), label="operation")
            with suppress(ApiError):
                operations[name](again)
        again.close()
    except DamagedLog:
        return  # the log goes offline, and only that


@given(content=st.binary(max_size=120))
def test_small_files_of_any_content_are_read_or_refused(content: bytes) -> None:
    for decode, refusal in (
        (decode_offsets, CorruptCheckpoint),
        (EpochCache.decode, CorruptCheckpoint),
        (decode_meta, CorruptMetaProperties),
        (decode_snapshot, CorruptSnapshot),
    ):
        try:
            decode(content)
        except refusal:
            continue


@given(position=st.integers(0, 200), flip=st.integers(1, 255))
def test_no_changed_byte_of_a_snapshot_goes_unnoticed(position: int, flip: int) -> None:
    content = bytearray(encode_snapshot(filled().producers.entries))
    content[position % len(content)] ^= flip
    try:
        decode_snapshot(bytes(content))
    except CorruptSnapshot:
        return
    raise AssertionError("a damaged snapshot was taken")
