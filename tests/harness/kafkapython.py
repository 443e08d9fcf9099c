"""kafka-python in the common shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import kafka
from kafka import errors
from kafka.admin import ConfigResource, ConfigResourceType

from tests.harness.deadline import Deadline
from tests.harness.model import (
    EARLIEST,
    LATEST,
    Ack,
    Admin,
    AdminError,
    Consumer,
    Headers,
    Message,
    Producer,
    TopicDescription,
)

LOCAL_FAILURE = -1000


def code_of(error: BaseException) -> int:
    """Return Kafka's error code, or LOCAL_FAILURE for an error of the library itself."""
    code = getattr(error, "errno", None)
    return code if isinstance(code, int) else LOCAL_FAILURE


class KafkaPythonProducer(Producer):
    def __init__(self, producer: kafka.KafkaProducer) -> None:
        self._producer = producer
        self._sent: list[tuple[int, object]] = []

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int = 0,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> None:
        try:
            future: object = self._producer.send(
                topic,
                value=value,
                key=key,
                partition=partition,
                timestamp_ms=timestamp_ms,
                headers=list(headers),
            )
        except errors.KafkaError as error:
            future = error
        self._sent.append((partition, future))

    def flush(self, timeout_s: float = 30.0) -> list[Ack]:
        deadline = Deadline(timeout_s)
        acks = [_ack(partition, future, deadline) for partition, future in self._sent]
        self._sent.clear()
        return acks

    def close(self) -> None:
        self._producer.close(timeout=5)


def _ack(partition: int, future: Any, deadline: Deadline) -> Ack:
    if isinstance(future, errors.KafkaError):
        return Ack(partition, -1, code_of(future))
    try:
        return Ack(partition, future.get(timeout=deadline.left).offset)
    except errors.KafkaError as error:
        return Ack(partition, -1, code_of(error))


class KafkaPythonConsumer(Consumer):
    def __init__(self, consumer: kafka.KafkaConsumer) -> None:
        self._consumer = consumer

    def assign(self, positions: Mapping[tuple[str, int], int]) -> None:
        self._consumer.assign([kafka.TopicPartition(*each) for each in positions])
        for (topic, partition), offset in positions.items():
            self.seek(topic, partition, offset)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        place = kafka.TopicPartition(topic, partition)
        if offset == EARLIEST:
            self._consumer.seek_to_beginning(place)
        elif offset == LATEST:
            self._consumer.seek_to_end(place)
        else:
            self._consumer.seek(place, offset)

    def poll(self, timeout_s: float) -> list[Message]:
        batches = self._consumer.poll(timeout_ms=int(timeout_s * 1000))
        return [
            Message(
                each.topic,
                each.partition,
                each.offset,
                each.timestamp,
                each.timestamp_type,
                each.key,
                each.value,
                tuple(each.headers),
            )
            for batch in batches.values()
            for each in batch
        ]

    def offsets_for_times(
        self, times: Mapping[tuple[str, int], int]
    ) -> dict[tuple[str, int], int | None]:
        asked = {kafka.TopicPartition(*place): time for place, time in times.items()}
        found = self._consumer.offsets_for_times(asked)
        return {
            (place.topic, place.partition): each.offset if each else None
            for place, each in found.items()
        }

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        place = kafka.TopicPartition(topic, partition)
        return (
            self._consumer.beginning_offsets([place])[place],
            self._consumer.end_offsets([place])[place],
        )

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonAdmin(Admin):
    def __init__(self, bootstrap_servers: str) -> None:
        self._admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap_servers)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        *,
        configs: Mapping[str, str] | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        topic: dict[str, object] = {"configs": dict(configs or {})}
        if assignment is None:
            topic |= {"num_partitions": partitions, "replication_factor": replication_factor}
        else:
            topic["assignments"] = {index: list(each) for index, each in enumerate(assignment)}
        answer = self._admin.create_topics(
            {name: topic}, validate_only=validate_only, raise_errors=False
        )
        _raise_for(answer["topics"][0])

    def delete_topic(self, name: str) -> None:
        answer = self._admin.delete_topics([name], raise_errors=False)
        _raise_for(answer["topics"][0])

    def list_topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def describe_topic(self, name: str) -> TopicDescription:
        (found,) = self._admin.describe_topics([name])
        _raise_for(found)
        return TopicDescription(
            found["name"],
            {
                each["partition_index"]: (
                    each["leader_id"],
                    each["replica_nodes"],
                    each["isr_nodes"],
                )
                for each in found["partitions"]
            },
        )

    def create_partitions(self, topic: str, total: int, *, validate_only: bool = False) -> None:
        answer = self._admin.create_partitions(
            {topic: total}, validate_only=validate_only, raise_errors=False
        )
        _raise_for(answer.to_dict()["results"][0])

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        found = self._admin.describe_configs([resource], config_filter="all")
        return {name: entry["value"] for name, entry in found["topic"][topic].items()}

    def set_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(configs))
        answer = self._admin.alter_configs([resource], raise_on_unknown=False)
        result = answer["topic"][topic]
        if result != "OK":  # a text like "[Error 40] InvalidConfigurationError: ..."
            raise AdminError(int(result.split("]")[0].removeprefix("[Error ")), result)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        place = kafka.TopicPartition(topic, partition)
        try:
            answer = self._admin.delete_records({place: before_offset})
        except errors.KafkaError as error:
            raise AdminError(code_of(error), str(error)) from error
        return int(answer[place]["low_watermark"])

    def close(self) -> None:
        self._admin.close()


def _raise_for(result: Mapping[str, object]) -> None:
    code = result["error_code"]
    assert isinstance(code, int)
    if code:
        raise AdminError(code, str(result.get("error_message")))


class KafkaPython:
    """The pure Python client."""

    name = "kafka-python"

    def producer(
        self,
        bootstrap_servers: str,
        *,
        acks: int | str = "all",
        compression: str = "none",
        idempotent: bool = False,
        linger_ms: int = 5,
        delivery_timeout_ms: int = 30_000,
    ) -> Producer:
        return KafkaPythonProducer(
            kafka.KafkaProducer(
                bootstrap_servers=bootstrap_servers,
                acks=acks,
                enable_idempotence=idempotent,
                compression_type=None if compression == "none" else compression,
                linger_ms=linger_ms,
                max_request_size=10_000_000,
                delivery_timeout_ms=delivery_timeout_ms,
                request_timeout_ms=delivery_timeout_ms - linger_ms,
                max_block_ms=delivery_timeout_ms,
                reconnect_backoff_ms=10,
                reconnect_backoff_max_ms=100,
                retry_backoff_ms=20,
                metrics_enabled=False,
            )
        )

    def consumer(
        self,
        bootstrap_servers: str,
        *,
        read_committed: bool = False,
        max_wait_ms: int = 100,
        min_bytes: int = 1,
        reset: str = "earliest",
        max_partition_bytes: int = 1_048_576,
    ) -> Consumer:
        return KafkaPythonConsumer(
            kafka.KafkaConsumer(
                bootstrap_servers=bootstrap_servers,
                enable_auto_commit=False,
                auto_offset_reset=reset,
                isolation_level="read_committed" if read_committed else "read_uncommitted",
                fetch_max_wait_ms=max_wait_ms,
                fetch_min_bytes=min_bytes,
                max_partition_fetch_bytes=max_partition_bytes,
                reconnect_backoff_ms=10,
                reconnect_backoff_max_ms=100,
                retry_backoff_ms=20,
                metrics_enabled=False,
            )
        )

    def admin(self, bootstrap_servers: str) -> Admin:
        return KafkaPythonAdmin(bootstrap_servers)
