"""Creates and deletes topics of the benchmark, with the admin client of confluent-kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from harness.probe import await_acknowledgement
from harness.problem import BenchError

REQUEST_TIMEOUT_S = 60.0
_TIMEOUTS = {"operation_timeout": REQUEST_TIMEOUT_S, "request_timeout": REQUEST_TIMEOUT_S}

_MIB = 1 << 20

KEPT: Mapping[str, str] = {"retention.bytes": "-1", "retention.ms": "-1"}
"""A topic that keeps everything."""


def rolling(partitions: int = 1) -> dict[str, str]:
    """Return the settings of a topic that deletes old data soon, so that memory is reused.

    All partitions together keep a few hundred MiB. A virtual machine may return memory that was
    free for two seconds to its host. The next access to it then costs more CPU than everything that
    a broker does with the data.
    """
    segment, kept = (128, 512) if partitions == 1 else (64, 64)
    return {"segment.bytes": str(segment * _MIB), "retention.bytes": str(kept * _MIB)}


def create_topic(
    port: int,
    topic: str,
    partitions: int,
    settings: Mapping[str, str],
    *,
    replicas: int = 1,
    others: Sequence[int] = (),
) -> None:
    """Create the topic and wait until partition 0 accepts writes, by all in-sync replicas.

    `others` are the ports of the other brokers of a cluster.
    """
    new = NewTopic(
        topic, num_partitions=partitions, replication_factor=replicas, config=dict(settings)
    )
    submit_topic(port, new)
    await_acknowledgement(
        port, topic, REQUEST_TIMEOUT_S, others=others, acks=1 if replicas == 1 else -1
    )


def submit_topic(port: int, new: NewTopic) -> None:
    """Create a topic and return when the broker has answered.

    It may have been created by an attempt whose answer came too late for the broker that asked.
    """
    admin = _admin(port)
    _await(
        "create",
        new.topic,
        admin.create_topics([new], **_TIMEOUTS)[new.topic],
        KafkaError.TOPIC_ALREADY_EXISTS,
    )


def delete_topic(port: int, topic: str) -> None:
    """Delete the topic. Its files are deleted a little later."""
    admin = _admin(port)
    _await("delete", topic, admin.delete_topics([topic], **_TIMEOUTS)[topic])


def _admin(port: int) -> AdminClient:
    address = f"127.0.0.1:{port}"
    return AdminClient(
        {"bootstrap.servers": address, "broker.address.family": "v4", "log_level": 3}
    )


def _await(action: str, topic: str, future: Future[None], harmless: int = 0) -> None:
    try:
        future.result(REQUEST_TIMEOUT_S)
    except (KafkaException, TimeoutError) as error:
        if isinstance(error, KafkaException) and harmless and error.args[0].code() == harmless:
            return
        raise BenchError(f"could not {action} topic {topic}: {error}") from error
