"""The common behaviour of message classes."""

from __future__ import annotations

import pytest

from ottla.wire.message import as_list
from ottla.wire.messages import metadata
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic


def test_equality_is_by_class_and_fields() -> None:
    assert MetadataRequestTopic(name="a") == MetadataRequestTopic(name="a")
    assert MetadataRequestTopic(name="a") != MetadataRequestTopic(name="b")
    assert MetadataRequest(topics=[MetadataRequestTopic()]) != MetadataRequest(topics=[])
    assert metadata.MetadataResponseBroker() != metadata.MetadataResponsePartition()


def test_messages_are_mutable_and_so_not_hashable() -> None:
    with pytest.raises(TypeError):
        hash(MetadataRequestTopic())


def test_repr_is_source_for_an_equal_message() -> None:
    message = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=bytes(range(16)))])
    assert repr(MetadataRequest(topics=None)) == "MetadataRequest(topics=None)"
    assert eval(repr(message), vars(metadata)) == message


def test_an_array_defaults_to_a_list_of_its_own() -> None:
    MetadataRequest().topics = [MetadataRequestTopic()]
    first = metadata.MetadataResponse()
    first.topics.append(metadata.MetadataResponseTopic())
    assert metadata.MetadataResponse().topics == []


def test_a_given_list_is_kept_and_a_tuple_copied() -> None:
    items = [1, 2]
    assert as_list(items) is items
    assert metadata.MetadataResponsePartition(isr_nodes=(1, 2)).isr_nodes == items


def test_no_attribute_can_be_misspelt() -> None:
    with pytest.raises(AttributeError):
        MetadataRequest().topcis = []  # type: ignore[attr-defined]
