"""The cleaner's codecs read and write what `records/compression.py` does."""

from __future__ import annotations

import sys
from random import Random

import pytest

from ottla.log.cleaner.batch_codecs import BatchCodecs
from ottla.records.batch import CorruptBatch
from ottla.records.compression import CODECS, LZ4, compress, decompress

COMPRESSED = [codec for codec in CODECS.values() if codec]
CONTENTS = [b"", b"a" * 70, b"0123456789" * 30_000, Random(1).randbytes(200_000)]


def content_of(codecs: BatchCodecs, codec: int, data: bytes) -> bytes:
    start, end = codecs.decompress(codec, memoryview(data))
    return bytes(codecs.arena[start:end])


@pytest.mark.parametrize("codec", COMPRESSED)
def test_each_reads_what_the_other_writes(codec: int) -> None:
    codecs = BatchCodecs()
    for content in CONTENTS:
        assert content_of(codecs, codec, compress(codec, content)) == content
        assert bytes(decompress(codec, codecs.compress(codec, content))) == content


def test_lz4_is_compressed_without_the_lz4_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lz4.block", None)
    codecs = BatchCodecs()
    for content in CONTENTS:
        made = codecs.compress(LZ4, content)
        assert bytes(decompress(LZ4, made)) == content
        assert len(made) <= len(content) + 64
        assert content_of(codecs, LZ4, made) == content


@pytest.mark.parametrize("codec", COMPRESSED)
def test_what_was_decompressed_stays_until_it_is_forgotten(codec: int) -> None:
    codecs, found = BatchCodecs(), []
    for number in range(200):  # more than the arena has room for at first
        content = bytes([number]) * 50_000
        found.append((content, codecs.decompress(codec, memoryview(compress(codec, content)))))
    for content, (start, end) in found:
        assert codecs.arena[start:end] == content
    codecs.forget()
    assert codecs.decompress(codec, memoryview(compress(codec, b"x"))) == (0, 1)
    assert len(codecs.arena) < 50_000 * 200


@pytest.mark.parametrize("codec", COMPRESSED)
def test_damage_is_noticed_or_harmless(codec: int) -> None:
    chance, codecs = Random(codec), BatchCodecs()
    whole = compress(codec, b"some records, some more records" * 50)
    for _ in range(300):
        damaged = bytearray(whole[: chance.randrange(1, len(whole) + 1)])
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        codecs.forget()
        try:
            content_of(codecs, codec, bytes(damaged))
        except CorruptBatch:
            pass
