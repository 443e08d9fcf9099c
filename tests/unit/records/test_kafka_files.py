"""Segments that a broker of Apache Kafka 4.3.0 wrote.

The topics had a compression.type of their own and the client sent uncompressed batches, so
it is Kafka's Java code that compressed them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.records.batch import crc_of, scan
from ottla.records.compression import CODECS, recompress
from ottla.records.control import ControlType, control_type, coordinator_epoch
from ottla.records.record import Record, records_of
from tests.support.records import null_keys

FILES = Path(__file__).parent / "kafka-4.3"

EXPECTED = [
    Record(
        n,
        1_700_000_000_000 + n,
        None if n == 3 else b"key-%d" % n,
        None if n == 4 else b"value %d " % n * 20,
        (("h", b"x"), ("n", None)) if n == 0 else (),
    )
    for n in range(5)
]


@pytest.mark.parametrize("name", CODECS)
def test_every_codec_as_java_writes_it(name: str) -> None:
    data = (FILES / f"{name}.log").read_bytes()
    (batch,) = scan(data, 0, len(data))
    assert batch.compression == CODECS[name]
    assert batch.crc == crc_of(memoryview(data), 0, len(data))
    assert records_of(data) == EXPECTED
    assert null_keys(data, 0, len(data))


@pytest.mark.parametrize("name", CODECS)
def test_recompressed_from_what_java_wrote(name: str) -> None:
    data = (FILES / f"{name}.log").read_bytes()
    for codec in CODECS.values():
        assert records_of(recompress(data, 0, len(data), codec)) == EXPECTED


def test_uncompressed_batches_are_the_same_bytes() -> None:
    data = (FILES / "none.log").read_bytes()
    for name, codec in CODECS.items():
        packed = (FILES / f"{name}.log").read_bytes()
        plain = recompress(packed, 0, len(packed), 0)
        assert plain == data, f"{name} ({codec})"


def test_transaction_markers() -> None:
    data = (FILES / "txn-0" / "00000000000000000003.log").read_bytes()
    markers = [batch for batch in scan(data, 0, len(data)) if batch.is_control]
    records = [records_of(data[batch.position : batch.end])[0] for batch in markers]
    assert [control_type(record.key) for record in records] == [
        ControlType.COMMIT,
        ControlType.ABORT,
    ]
    assert [coordinator_epoch(record.value) for record in records] == [0, 0]
    assert all(batch.is_transactional for batch in markers)
