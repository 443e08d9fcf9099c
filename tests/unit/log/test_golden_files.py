"""The files that fixed input produces, byte for byte.

`make interop` shows them to Kafka's own DumpLogSegments as well, if its jars are found in the
directory OTTLA_KAFKA_LIBS or where the benchmark keeps them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ottla.config.topic import LogConfig
from ottla.server.os_files import OsFiles
from tests.support.log import NOW, append_all, batch_of, new_log, new_resources

GOLDEN = {
    "00000000000000000000.index": "000000030000008d000000050000011a",
    "00000000000000000000.timeindex": ("0000018bcfe56801000000030000018bcfe5680200000005"),
    "00000000000000000006.index": "",
    "00000000000000000006.timeindex": "0000018bcfe5680300000001",
    "leader-epoch-checkpoint": b"0\n2\n3 0\n4 4\n".hex(),
    "partition.metadata": b"version: 0\ntopic_id: AQIDBAUGBwgJCgsMDQ4PEA".hex(),
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return four batches of two records in two segments, by one idempotent producer."""
    path = tmp_path / "orders-0"
    config = LogConfig(segment_bytes=500, index_interval_bytes=100)
    log = new_log(config, new_resources(OsFiles()), str(path))
    for number in range(4):
        batch = batch_of(
            2,
            timestamp=NOW + number,
            value=b"value-%02d" % number * 4,
            producer_id=1000,
            producer_epoch=1,
            base_sequence=2 * number,
        )
        append_all(log, batch, leader_epoch=3 + number // 2)
    log.close()
    return path


def test_the_files_are_these(directory: Path) -> None:
    assert sorted(path.name for path in directory.iterdir()) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000006.index",
        "00000000000000000006.log",
        "00000000000000000006.snapshot",
        "00000000000000000006.timeindex",
        "00000000000000000008.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]


@pytest.mark.parametrize("name", list(GOLDEN))
def test_small_files(directory: Path, name: str) -> None:
    assert (directory / name).read_bytes().hex() == GOLDEN[name]


def test_the_first_batch(directory: Path) -> None:
    segment = (directory / "00000000000000000000.log").read_bytes()
    assert len(segment) == 3 * 141
    record = "0000{delta}026b40" + (b"value-00" * 4).hex() + "00"
    assert segment[:141].hex() == (
        "0000000000000000"  # base offset
        "00000081"  # length
        "00000003"  # leader epoch
        "02"  # magic
        "7224137c"  # CRC
        "0000"  # attributes
        "00000001"  # last offset delta
        "0000018bcfe56800"  # base timestamp
        "0000018bcfe56800"  # largest timestamp
        "00000000000003e8"  # producer id
        "0001"  # producer epoch
        "00000000"  # base sequence
        "00000002" + "4e" + record.format(delta="00") + "4e" + record.format(delta="02")  # records
    )


def test_the_snapshots(directory: Path) -> None:
    content = (directory / "00000000000000000008.snapshot").read_bytes()
    assert content[:2].hex() == "0001"
    entries = content[10:]
    assert content[6:10].hex() == "00000004"
    assert entries[-46:].hex() == (
        "00000000000003e8"  # producer id
        "0001"  # epoch
        "00000007"  # last sequence
        "0000000000000007"  # last offset
        "00000001"  # offset delta
        "0000018bcfe56803"  # timestamp
        "ffffffff"  # coordinator epoch
        "ffffffffffffffff"  # no transaction
    )


def kafka_libs() -> str | None:
    """Return the directory with Kafka's jars."""
    if found := os.environ.get("OTTLA_KAFKA_LIBS"):
        return found
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ottla-bench"
    jars = sorted(cache.glob("**/kafka-tools-4*.jar"))
    return str(jars[-1].parent) if jars else None


@pytest.mark.interop
def test_kafkas_own_tool_reads_them(directory: Path) -> None:
    libs = kafka_libs()
    if libs is None or shutil.which("java") is None:
        pytest.skip("Java and Kafka's jars are needed; see OTTLA_KAFKA_LIBS")
    suffixes = (".log", ".index", ".timeindex", ".snapshot")
    files = [str(path) for path in sorted(directory.iterdir()) if path.suffix in suffixes]
    tool = ["java", "-cp", f"{libs}/*", "org.apache.kafka.tools.DumpLogSegments", "--files"]
    arguments = [*tool, ",".join(files), "--deep-iteration", "--print-data-log"]
    result = subprocess.run(arguments, capture_output=True, text=True, check=True)
    for expected in (
        "baseOffset: 6 lastOffset: 7 count: 2 baseSequence: 6 lastSequence: 7 producerId: 1000",
        "offset: 3 position: 141",
        f"timestamp: {NOW + 3} offset: 7",
        "producerId: 1000 producerEpoch: 1",
        "isvalid: true",
        "payload: value-03value-03value-03value-03",
    ):
        assert expected in result.stdout
    for complaint in ("Found", "isvalid: false", "Index position", "Mismatch"):
        assert complaint not in result.stdout
