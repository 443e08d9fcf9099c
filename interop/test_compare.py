"""Ottla's answers are those of Apache Kafka, but for the differences that are meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.handlers import SERVED
from ottla.wire.apis import API_INFO


@pytest.mark.timeout(300)
def test_ottla_answers_as_kafka_does(tmp_path: Path) -> None:
    from compare.comparison import compare
    from compare.systems import KAFKA_VERSION

    from harness.jars import kafka_jars
    from harness.problem import BenchError

    try:
        kafka_jars(KAFKA_VERSION)
    except BenchError as error:
        pytest.skip(str(error))
    result = compare(tmp_path)
    assert not result.unexpected, f"{len(result.unexpected)} differences:\n" + "\n".join(
        f"{each.title}\n  {each.path}\n    Kafka: {each.kafka!r}\n    Ottla: {each.ottla!r}"
        for each in result.unexpected[:20]
    )
    gone = "\n".join(map(str, result.outdated))
    assert not result.outdated, f"remove these from meant_differences.py:\n{gone}"


def test_every_api_that_is_served_is_compared() -> None:
    from compare.requests import all_cases

    cases = all_cases()
    assert len(cases) >= 320
    assert {case.api for case in cases} >= {API_INFO[key].name for key in SERVED}
