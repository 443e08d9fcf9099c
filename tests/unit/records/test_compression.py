from __future__ import annotations

import gzip
import random
import subprocess
import sys
import tracemalloc
import zlib

import pytest

from ottla.records.batch import CorruptBatch, crc_of, parse_header
from ottla.records.compression import (
    CODECS,
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    codec_name,
    compress,
    decompress,
    recompress,
)
from ottla.records.record import build_batch, records_of

COMPRESSED = [GZIP, SNAPPY, LZ4, ZSTD]
SAMPLES = {
    "empty": b"",
    "one byte": b"x",
    "text": b"the quick brown fox jumps over the lazy dog. " * 5000,
    "noise": random.Random(1).randbytes(200_000),
    "zeros": bytes(3_000_000),
}
MB = 1024 * 1024


@pytest.mark.parametrize("codec", CODECS.values())
@pytest.mark.parametrize("sample", SAMPLES)
def test_round_trip(codec: int, sample: str) -> None:
    data = SAMPLES[sample]
    assert bytes(decompress(codec, compress(codec, data), len(data))) == data


@pytest.mark.parametrize("codec", CODECS.values())
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_every_kind_of_buffer(codec: int, wrap: type) -> None:
    data = SAMPLES["text"]
    packed = compress(codec, wrap(data))
    assert bytes(decompress(codec, wrap(packed), MB)) == data


@pytest.mark.parametrize("codec", CODECS.values())
@pytest.mark.parametrize("sample", ["text", "noise", "zeros"])
def test_limit_is_exact(codec: int, sample: str) -> None:
    data = SAMPLES[sample]
    packed = compress(codec, data)
    assert len(decompress(codec, packed, len(data))) == len(data)
    with pytest.raises(CorruptBatch, match="more than"):
        decompress(codec, packed, len(data) - 1)


def test_unknown_codecs() -> None:
    with pytest.raises(CorruptBatch, match="no compression codec 5"):
        decompress(5, b"abc", 10)
    with pytest.raises(ValueError, match="no compression codec 5"):
        compress(5, b"abc")
    assert [codec_name(number) for number in (0, 4, 7)] == ["none", "zstd", "unknown(7)"]


@pytest.mark.parametrize("codec", COMPRESSED)
def test_damaged_data(codec: int) -> None:
    packed = compress(codec, SAMPLES["text"])
    for damaged in (b"", b"\x01", packed[: len(packed) // 2], bytes(40), b"\xff" * 40):
        with pytest.raises(CorruptBatch):
            decompress(codec, damaged, MB)


# Each of these expands to 256 MiB and is built without compressing so much.


def _gzip_bomb() -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    megabytes = [packer.compress(bytes(MB)) for _ in range(256)]
    return b"".join(megabytes) + packer.flush()


def _lz4_bomb() -> bytes:
    frame = compress(LZ4, bytes(64 * 1024))
    header, block, end = frame[:7], frame[7:-4], frame[-4:]
    return bytes(header) + bytes(block) * 4096 + bytes(end)


def _zstd_bomb(descriptor: bytes) -> bytes:
    """Return RLE blocks of 128 KiB after the given frame header."""
    block = (131072 << 3 | 2).to_bytes(3, "little") + b"\0"
    last = (131072 << 3 | 3).to_bytes(3, "little") + b"\0"
    return bytes.fromhex("28b52ffd") + descriptor + block * 2047 + last


def _snappy_bomb() -> bytes:
    import cramjam

    return bytes(cramjam.snappy.compress_raw(bytes(256 * MB)))


BOMBS = {
    "gzip": (GZIP, _gzip_bomb),
    "gzip that says 0": (GZIP, lambda: _gzip_bomb() + gzip.compress(b"")),
    "snappy": (SNAPPY, _snappy_bomb),
    "snappy that lies": (SNAPPY, lambda: b"\x80\x80\x80\x80\x04" + bytes(20)),
    "xerial": (SNAPPY, lambda: compress(SNAPPY, bytes(256 * MB))),
    "lz4": (LZ4, _lz4_bomb),
    "zstd of unknown size": (ZSTD, lambda: _zstd_bomb(b"\x00\x88")),
    "zstd of declared size": (ZSTD, lambda: _zstd_bomb(b"\xe0" + (256 * MB).to_bytes(8, "little"))),
    "zstd that says 1 byte": (ZSTD, lambda: _zstd_bomb(b"\x20\x01")),
    "zstd that says 2**60": (ZSTD, lambda: _zstd_bomb(b"\xe0" + (2**60).to_bytes(8, "little"))),
    "zstd with a window of 2 GiB": (ZSTD, lambda: _zstd_bomb(b"\x00\xa8")),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_allocates_no_more_than_the_limit(bomb: str) -> None:
    codec, make = BOMBS[bomb]
    packed = make()
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch):
            decompress(codec, packed, 4 * MB)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * MB + 64 * 1024


def test_the_decoders_own_memory_is_bounded() -> None:
    """What tracemalloc cannot see: resident memory of a process that meets zstd and LZ4 bombs."""
    code = """
import resource, sys
from ottla.records.batch import CorruptBatch
from ottla.records.compression import decompress
import cramjam
block = (131072 << 3 | 2).to_bytes(3, "little") + b"\\0"
zstd = bytes.fromhex("28b52ffd") + b"\\x00\\x88" + block * 8192
decompress(4, bytes(cramjam.zstd.compress(b"warm")), 100)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(4, zstd, 8 << 20)
except CorruptBatch:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert int(result.stdout) < 32 * 1024


def test_gzip_of_several_members() -> None:
    packed = gzip.compress(b"one") + gzip.compress(b"two" * 10_000)
    assert decompress(GZIP, packed, MB) == b"one" + b"two" * 10_000


def test_xerial_frames_may_follow_each_other() -> None:
    packed = compress(SNAPPY, b"one") + compress(SNAPPY, b"two")
    assert decompress(SNAPPY, packed, MB) == b"onetwo"


def test_xerial_as_java_writes_it() -> None:
    data = random.Random(2).randbytes(70_000)
    packed = compress(SNAPPY, data)
    assert packed[:16] == b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01"
    position, sizes = 16, []
    while position < len(packed):
        length = int.from_bytes(packed[position : position + 4], "big")
        block = packed[position + 4 : position + 4 + length]
        sizes.append(len(decompress(SNAPPY, block, MB)))
        position += 4 + length
    assert sizes == [32768, 32768, 4464]


@pytest.mark.parametrize("cut", [9, 15, 17, 19, 25])
def test_xerial_cut_short(cut: int) -> None:
    with pytest.raises(CorruptBatch, match="snappy"):
        decompress(SNAPPY, compress(SNAPPY, b"hello" * 100)[:cut], MB)


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 200_000])
@pytest.mark.parametrize("is_random", [False, True])
def test_lz4_frames_are_those_of_javas_clients(size: int, is_random: bool) -> None:
    """Independent blocks of 64 KiB (Kafka's Java reader refuses linked ones), no checksums."""
    data = random.Random(1).randbytes(size) if is_random else bytes(size)
    packed = compress(LZ4, data)
    assert packed[:7] == bytes.fromhex("04224d18 604082")
    assert packed[-4:] == bytes(4)
    assert len(packed) <= 7 + size + 4 * (size // 65_536 + 2), "what does not shrink is stored"
    assert pytest.importorskip("lz4.frame").decompress(packed) == data
    assert decompress(LZ4, packed, MB) == data


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_a_higher_level_compresses_better(codec: int) -> None:
    words = random.Random(3).choices([b"alpha", b"beta", b"gamma", b"delta", b"%d"], k=30_000)
    data = b" ".join(words)
    low, high = {GZIP: (1, 9), LZ4: (9, 12), ZSTD: (-5, 19)}[codec]
    packed = compress(codec, data, high)
    assert len(packed) < len(compress(codec, data, low))
    assert decompress(codec, packed, MB) == data


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(GZIP, [-1, 1, 9]), (LZ4, [1, 9, 17]), (ZSTD, [-131072, 0, 22])],
)
def test_every_level_kafka_allows(codec: int, levels: list[int]) -> None:
    for level in levels:
        assert decompress(codec, compress(codec, b"abc" * 100, level), 300) == b"abc" * 100


def test_default_levels_are_kafkas() -> None:
    data = SAMPLES["text"]
    assert compress(GZIP, data) == compress(GZIP, data, 6)
    assert compress(ZSTD, data) == compress(ZSTD, data, 3)
    assert compress(LZ4, data) == compress(LZ4, data, 9)


@pytest.mark.parametrize("source", CODECS.values())
@pytest.mark.parametrize("target", CODECS.values())
def test_recompress_changes_the_codec_and_nothing_else(source: int, target: int) -> None:
    records = [(b"k%d" % n, b"v" * n, 1000 - n, [("h", b"x")]) for n in range(50)]
    batch = build_batch(
        records, base_offset=9, codec=source, producer_id=3, producer_epoch=1, base_sequence=5,
        leader_epoch=2, is_transactional=True, timestamp_type=1,
    )  # fmt: skip
    buffer = b"before" + batch + b"after"
    result = recompress(buffer, 6, 6 + len(batch), target)
    before, after = parse_header(batch, 0), parse_header(result, 0)
    assert after.compression == target
    assert after.size == len(result)
    assert after.crc == crc_of(memoryview(result), 0, len(result))
    assert records_of(result) == records_of(batch)
    changed = {"batch_length": 0, "crc": 0, "attributes": before.attributes & ~7}
    assert before._replace(**changed) == after._replace(
        **(changed | {"attributes": after.attributes & ~7})
    )


def test_recompress_refuses_damaged_records() -> None:
    batch = build_batch([(b"k", b"v" * 500, 0, ())], codec=ZSTD)
    batch[70] ^= 0xFF
    with pytest.raises(CorruptBatch):
        recompress(batch, 0, len(batch), GZIP)
