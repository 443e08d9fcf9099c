"""Manifests of remote segments: what is written can be read, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.state.leader_epochs import EpochEntry
from ottla.tiered.layout import DATA_KINDS
from ottla.tiered.manifest import (
    MAX_BYTES,
    BadManifest,
    Manifest,
    ObjectSummary,
    decode_manifest,
    encode_manifest,
)

SUMMARIES = {kind: ObjectSummary(size, 2**32 - 1 - size) for size, kind in enumerate(DATA_KINDS)}


def manifest(**changes: Any) -> Manifest:
    fields: dict[str, Any] = {
        "topic": "orders",
        "topic_id": bytes(range(16)),
        "partition": 3,
        "segment_id": bytes(range(100, 116)),
        "start_offset": 1000,
        "end_offset": 1999,
        "max_timestamp_ms": 1_700_000_000_000,
        "broker_id": 1,
        "event_timestamp_ms": 1_700_000_001_000,
        "leader_epochs": (EpochEntry(4, 1000), EpochEntry(6, 1500)),
        "objects": SUMMARIES,
        "replaces": (bytes(16), b"\xff" * 16),
    }
    return Manifest(**{**fields, **changes})


def test_the_json_is_as_documented() -> None:
    fields = json.loads(encode_manifest(manifest()))
    assert fields["version"] == 1
    assert fields["topic_id"] == "AAECAwQFBgcICQoLDA0ODw"
    assert fields["leader_epochs"] == {"4": 1000, "6": 1500}
    assert fields["objects"]["index"] == {"size": 1, "crc32c": 4294967294}
    assert fields["size"] == 0
    assert set(fields) == {
        *("version", "topic", "topic_id", "partition", "segment_id", "start_offset", "end_offset"),
        *("max_timestamp_ms", "broker_id", "event_timestamp_ms", "size", "leader_epochs"),
        *("objects", "replaces"),
    }


def test_its_keys() -> None:
    stem = "orders-AAECAwQFBgcICQoLDA0ODw/3/00000000000000001000-ZGVmZ2hpamtsbW5vcHFycw"
    assert manifest().key() == stem + ".manifest"
    assert manifest().key("log") == stem + ".log"


def test_a_manifest_comes_back() -> None:
    assert decode_manifest(encode_manifest(manifest())) == manifest()
    small = manifest(
        objects={k: SUMMARIES[k] for k in DATA_KINDS if k not in ("txnindex", "snapshot")},
        max_timestamp_ms=-1,
        replaces=(),
    )
    assert decode_manifest(encode_manifest(small)) == small


@pytest.mark.parametrize(
    "changes",
    [
        {"end_offset": 999},
        {"start_offset": -1},
        {"partition": -1},
        {"partition": 2**31},
        {"topic": "a/b"},
        {"topic": ""},
        {"topic": "x" * 250},
        {"topic_id": b"short"},
        {"leader_epochs": ()},
        {"leader_epochs": (EpochEntry(5, 1000), EpochEntry(4, 1500))},
        {"leader_epochs": (EpochEntry(4, 1500), EpochEntry(5, 1500))},
        {"leader_epochs": (EpochEntry(4, 2000),)},
        {"leader_epochs": (EpochEntry(-1, 0),)},
        {"objects": {"log": ObjectSummary(1, 1)}},
        {"objects": {**SUMMARIES, "other": ObjectSummary(1, 1)}},
        {"objects": {**SUMMARIES, "index": ObjectSummary(-1, 1)}},
        {"objects": {**SUMMARIES, "index": ObjectSummary(1, 2**32)}},
    ],
)
def test_an_invalid_one_is_not_written(changes: dict[str, Any]) -> None:
    with pytest.raises(BadManifest):
        encode_manifest(manifest(**changes))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda f: f.update(version=2), "version 2 of a manifest is not supported"),
        (lambda f: f.update(version=True), "version is True"),
        (lambda f: f.update(start_offset="1"), "start_offset is '1', not an integer"),
        (lambda f: f.update(end_offset=1.5), "end_offset is 1.5"),
        (lambda f: f.update(end_offset=2**63), "end_offset is 9223372036854775808"),
        (lambda f: f.update(topic=None), "topic is None, not a text"),
        (lambda f: f.update(topic="../../etc"), "not a topic's name"),
        (lambda f: f.update(segment_id="../../../../../../x"), "Kafka's notation"),
        (lambda f: f.update(segment_id="\u00e9" * 22), "Kafka's notation"),
        (lambda f: f.update(size=5), "size is not that of the log object"),
        (lambda f: f.update(leader_epochs=[]), "leader_epochs is \\[\\]"),
        (lambda f: f.update(leader_epochs={"x": 1}), "a leader epoch is 'x'"),
        (lambda f: f.update(leader_epochs={"9" * 30: 1}), "a leader epoch is"),
        (lambda f: f.update(objects={}), "objects is {}"),
        (lambda f: f["objects"].update(log=3), "log is 3"),
        (lambda f: f.update(replaces="x"), "replaces is 'x'"),
        (lambda f: f.update(replaces=[1]), "a list of ids"),
        (lambda f: f.update(replaces=["x"] * 10_001), "at most 10000"),
        (lambda f: f.pop("partition"), "partition is missing"),
    ],
)
def test_a_field_that_is_wrong(change: Callable[[dict[str, Any]], None], reason: str) -> None:
    fields = json.loads(encode_manifest(manifest()))
    change(fields)
    with pytest.raises(BadManifest, match=reason) as raised:
        decode_manifest(json.dumps(fields).encode())
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe\xfd",
        b"[" * 100_000,
        b'{"a": ' * 100_000,
        b'{"version": ' + b"9" * 100_000 + b"}",
        b'{"version": NaN}',
        b'{"version": 1, "version": 1}',
        b" " * (MAX_BYTES + 1),
    ],
)
def test_other_content(content: bytes) -> None:
    with pytest.raises(BadManifest):
        decode_manifest(content)


def test_fields_of_a_later_release_are_ignored() -> None:
    fields = json.loads(encode_manifest(manifest()))
    fields["later"] = {"x": [1, 2]}
    assert decode_manifest(json.dumps(fields).encode()) == manifest()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


@given(st.data())
def test_any_value_anywhere_is_read_or_refused(data: st.DataObject) -> None:
    fields = json.loads(encode_manifest(manifest()))
    place = data.draw(st.sampled_from([fields, fields["objects"], fields["objects"]["log"]]))
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JSON)
    try:
        found = decode_manifest(json.dumps(fields).encode())
    except BadManifest:
        return
    assert decode_manifest(encode_manifest(found)) == found
