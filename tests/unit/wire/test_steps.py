"""Codecs in steps give the same as the others, and yield after a few items."""

from __future__ import annotations

import pytest

from ottla.broker.handlers import SERVED
from ottla.model.steps import run_to_end
from ottla.wire import decoding
from ottla.wire.apis import request_class, response_class
from ottla.wire.codec import DecodeError, decoder, encoder, step_decoder, step_encoder
from ottla.wire.lazy_list import LazyList
from ottla.wire.message import Message
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.support.broker import filled

VERSIONS = [
    pytest.param(message, version, id=f"{message.__name__}-v{version}")
    for key, served in SERVED.items()
    for message in (request_class(key), response_class(key))
    for version in {served.oldest, served.newest}
]


@pytest.mark.parametrize(("message", "version"), VERSIONS)
def test_same_as_at_once(message: type[Message], version: int) -> None:
    sample = filled(message, version)
    for field in message.FIELDS:
        value = getattr(sample, field.name)
        if field.exists(version) and isinstance(value, list):
            setattr(sample, field.name, value * 200)
    body = encoder(message, version)(sample)
    assert run_to_end(step_encoder(message, version)(sample)) == body
    decoded, _ = decoder(message, version)(body, 0, len(body))
    assert run_to_end(step_decoder(message, version)(body, 0, len(body))) == decoded


def test_a_step_is_a_few_items() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 1000)
    body = encoder(MetadataRequest, 12)(request)
    steps = sum(1 for _ in step_decoder(MetadataRequest, 12)(body, 0, len(body)))
    assert steps == 1 + 1000 // decoding.ITEMS_A_STEP


def test_items_are_made_when_the_encoder_comes_to_them() -> None:
    made: list[str] = []

    def make(name: str) -> MetadataResponseTopic:
        made.append(name)
        return MetadataResponseTopic(name=name)

    names = [f"t{number}" for number in range(100)]
    response = MetadataResponse(topics=LazyList(make, names))
    steps = step_encoder(MetadataResponse, 12)(response)
    next(steps)
    assert made == []
    next(steps)
    assert made == names[:32]
    body = run_to_end(steps)
    expected = MetadataResponse(topics=[MetadataResponseTopic(name=name) for name in names])
    assert body == encoder(MetadataResponse, 12)(expected)


def test_too_many_items_are_refused() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 600)
    body = encoder(MetadataRequest, 11)(request)
    with pytest.raises(DecodeError, match="more than 500 elements"):
        run_to_end(step_decoder(MetadataRequest, 11, 500)(body, 0, len(body)))


def test_long_arrays_of_numbers_are_written_in_more_steps() -> None:
    """Ten thousand assigned partitions take as long as hundreds of other items."""
    numbers = list(range(10_000))
    topics = [TopicRequest(name="t", partition_indexes=numbers) for _ in range(20)]
    steps = step_encoder(DescribeProducersRequest, 0)(DescribeProducersRequest(topics=topics))
    assert sum(1 for _ in steps) == 1 + len(topics)


@pytest.mark.parametrize("numbers", [1, 2048, 2049, 10_000])
def test_numbers_are_read_in_steps(numbers: int) -> None:
    request = DescribeProducersRequest(
        topics=[TopicRequest(name="t", partition_indexes=list(range(numbers)))] * 2
    )
    body = encoder(DescribeProducersRequest, 0)(request)
    steps = step_decoder(DescribeProducersRequest, 0)(body, 0, len(body))
    assert sum(1 for _ in steps) >= 1 + 2 * ((numbers - 1) // decoding.NUMBERS_A_STEP)
    assert run_to_end(step_decoder(DescribeProducersRequest, 0)(body, 0, len(body))) == request


def test_too_many_numbers_are_refused() -> None:
    request = DescribeProducersRequest(
        topics=[TopicRequest(name="t", partition_indexes=[1] * (500 * decoding.NUMBERS_AN_ITEM))]
    )
    body = encoder(DescribeProducersRequest, 0)(request)
    assert run_to_end(step_decoder(DescribeProducersRequest, 0, 501)(body, 0, len(body)))
    with pytest.raises(DecodeError, match="more than 499 elements"):
        run_to_end(step_decoder(DescribeProducersRequest, 0, 499)(body, 0, len(body)))


def test_a_step_comes_whatever_the_number_of_items_in_items() -> None:
    """63 numbers and their topic are as many as the items of a step."""
    topic = TopicRequest(name="t", partition_indexes=[1] * 63 * decoding.NUMBERS_AN_ITEM)
    body = encoder(DescribeProducersRequest, 0)(DescribeProducersRequest(topics=[topic] * 100))
    assert sum(1 for _ in step_decoder(DescribeProducersRequest, 0)(body, 0, len(body))) >= 50
