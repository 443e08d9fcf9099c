"""Sequences of idempotent producers where a group write fails."""

from __future__ import annotations

import pytest

from ottla.model.errors import ErrorCode
from ottla.sim.disk.faults import UNLIMITED
from ottla.sim.model.batch import Producer
from ottla.sim.script import Script
from tests.support.sim_script import (
    PRODUCE_VERSION,
    answer_of,
    create_topic,
    produce,
    produce_request,
    read,
)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(Producer(7, 0, 1), Producer(7, 0, 5), id="out of order"),
        pytest.param(Producer(7, 1, 0), Producer(7, 0, 1), id="fenced"),
    ],
)
def test_a_refusal_because_of_a_batch_that_was_taken_back_is_taken_back(
    first: Producer, second: Producer
) -> None:
    script = Script()
    create_topic(script)
    assert produce(script, b"0", producer=Producer(7, 0, 0)).error_code == 0
    script.faults.volumes[0].free_bytes = 0
    channel = script.connect()
    exchanges = [
        script.send(channel, produce_request(script, value, producer=producer), PRODUCE_VERSION)
        for value, producer in ((b"1", first), (b"2", second))
    ]
    script.wake()
    codes = [answer_of(exchange).error_code for exchange in exchanges]
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    script.faults.volumes[0].free_bytes = UNLIMITED
    assert produce(script, b"1", producer=Producer(7, 0, 1)).error_code == 0
    assert read(script) == [b"0", b"1"]
