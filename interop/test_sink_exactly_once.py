"""The tests of the sink's commit, with transactions of a real Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyarrow", reason="needs ottla[spark]")

from tests.unit.pyspark_ottla.sink.test_batch_commit import *  # noqa: F403

ALONE = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


@pytest.fixture(scope="module", name="servers")
def servers_of_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield Kafka's address, in place of the broker that the imported tests have."""
    from harness.problem import BenchError
    from harness.systems import Kafka

    try:
        broker = Kafka(None).new_broker(tmp_path_factory.mktemp("kafka") / "broker", ALONE)
    except BenchError as error:
        pytest.skip(str(error))
    broker.start()
    try:
        yield f"127.0.0.1:{broker.port}"
    finally:
        broker.kill()
