"""Metadata replies that are kept until the cluster changes."""

from __future__ import annotations

from ottla.broker.metadata_cache import MOST_BYTES, MetadataCache
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.broker import Broker

LARGE = bytes(MOST_BYTES // 2)


def test_a_reply_is_found_by_its_whole_question() -> None:
    cache = MetadataCache()
    cache.put((9, "PLAINTEXT", b"q"), b"reply")
    assert cache.get((9, "PLAINTEXT", b"q")) == b"reply"
    assert cache.get((8, "PLAINTEXT", b"q")) is None
    assert cache.get((9, "SSL", b"q")) is None
    cache.clear()
    assert cache.get((9, "PLAINTEXT", b"q")) is None


def test_everything_goes_when_there_is_no_room() -> None:
    cache = MetadataCache()
    cache.put((9, "L", b"1"), LARGE)
    cache.put((9, "L", b"2"), LARGE)
    assert cache.get((9, "L", b"1")) is None
    assert cache.get((9, "L", b"2")) == LARGE


def test_a_reply_that_never_fits_is_not_kept() -> None:
    cache = MetadataCache()
    cache.put((9, "L", b"1"), bytes(MOST_BYTES + 1))
    assert cache.get((9, "L", b"1")) is None


def test_a_new_topic_is_seen_at_once(broker: Broker) -> None:
    client = broker.connect()
    assert client.ask(MetadataRequest(topics=None)).topics == []
    broker.topic("new")
    assert [topic.name for topic in client.ask(MetadataRequest(topics=None)).topics] == ["new"]


def test_a_reply_with_an_error_is_not_kept(broker: Broker) -> None:
    client = broker.connect()
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False
    )
    assert client.ask(request).topics[0].error_code
    broker.topic("t")
    assert not client.ask(request).topics[0].error_code
