"""aiokafka in the common shape: each object has its own event loop, which runs only while asked."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import aiokafka
from aiokafka import admin as aka
from aiokafka import errors
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.harness.kafkapython import code_of
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

T = TypeVar("T")


class Loop:
    """An event loop that runs a coroutine to its end, and the background tasks meanwhile."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def run(self, work: Coroutine[object, object, T]) -> T:
        return self._runner.run(work)

    def close(self) -> None:
        self._runner.close()


class AioProducer(Producer):
    def __init__(self, options: dict[str, object]) -> None:
        self._loop = Loop()
        self._producer = self._loop.run(self._start(options))
        self._sent: list[tuple[int, asyncio.Future[object] | BaseException]] = []

    async def _start(self, options: dict[str, object]) -> aiokafka.AIOKafkaProducer:
        producer = aiokafka.AIOKafkaProducer(**options)
        await producer.start()
        return producer

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
            future = self._loop.run(
                self._producer.send(topic, value, key, partition, timestamp_ms, list(headers))
            )
        except errors.KafkaError as error:
            future = error
        self._sent.append((partition, future))

    def flush(self, timeout_s: float = 30.0) -> list[Ack]:
        acks = self._loop.run(asyncio.wait_for(self._acks(), timeout_s))
        self._sent.clear()
        return acks

    async def _acks(self) -> list[Ack]:
        return [await _ack(partition, future) for partition, future in self._sent]

    def close(self) -> None:
        self._loop.run(self._producer.stop())
        self._loop.close()


async def _ack(partition: int, future: Any) -> Ack:
    if isinstance(future, BaseException):
        return Ack(partition, -1, code_of(future))
    try:
        told = await future  # None with acks=0
        return Ack(partition, told.offset if told else -1)
    except errors.KafkaError as error:
        return Ack(partition, -1, code_of(error))


class AioConsumer(Consumer):
    def __init__(self, options: dict[str, object]) -> None:
        self._loop = Loop()
        self._consumer = self._loop.run(self._start(options))

    async def _start(self, options: dict[str, object]) -> aiokafka.AIOKafkaConsumer:
        consumer = aiokafka.AIOKafkaConsumer(**options)
        await consumer.start()
        return consumer

    def assign(self, positions: Mapping[tuple[str, int], int]) -> None:
        self._loop.run(self._assign(positions))

    async def _assign(self, positions: Mapping[tuple[str, int], int]) -> None:
        self._consumer.assign([aiokafka.TopicPartition(*each) for each in positions])
        places: dict[int, list[aiokafka.TopicPartition]] = {EARLIEST: [], LATEST: []}
        for place, offset in positions.items():
            if offset in places:
                places[offset].append(aiokafka.TopicPartition(*place))
            else:
                self._consumer.seek(aiokafka.TopicPartition(*place), offset)
        if places[EARLIEST]:
            await self._consumer.seek_to_beginning(*places[EARLIEST])
        if places[LATEST]:
            await self._consumer.seek_to_end(*places[LATEST])

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._loop.run(self._seek(aiokafka.TopicPartition(topic, partition), offset))

    async def _seek(self, place: aiokafka.TopicPartition, offset: int) -> None:
        if offset == EARLIEST:
            await self._consumer.seek_to_beginning(place)
        elif offset == LATEST:
            await self._consumer.seek_to_end(place)
        else:
            self._consumer.seek(place, offset)

    def poll(self, timeout_s: float) -> list[Message]:
        batches = self._loop.run(self._consumer.getmany(timeout_ms=int(timeout_s * 1000)))
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
        asked = {aiokafka.TopicPartition(*place): time for place, time in times.items()}
        found = self._loop.run(self._consumer.offsets_for_times(asked))
        return {
            (place.topic, place.partition): each.offset if each else None
            for place, each in found.items()
        }

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        place = aiokafka.TopicPartition(topic, partition)
        low = self._loop.run(self._consumer.beginning_offsets([place]))[place]
        return low, self._loop.run(self._consumer.end_offsets([place]))[place]

    def close(self) -> None:
        self._loop.run(self._consumer.stop())
        self._loop.close()


class AioAdmin(Admin):
    def __init__(self, bootstrap_servers: str) -> None:
        self._loop = Loop()
        self._admin = self._loop.run(self._start(bootstrap_servers))

    async def _start(self, bootstrap_servers: str) -> aka.AIOKafkaAdminClient:
        admin = aka.AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
        await admin.start()
        return admin

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
        if assignment is None:
            topic = aka.NewTopic(name, partitions, replication_factor, None, dict(configs or {}))
        else:
            replicas = {index: list(each) for index, each in enumerate(assignment)}
            topic = aka.NewTopic(name, -1, -1, replicas, dict(configs or {}))
        answer = self._loop.run(self._admin.create_topics([topic], validate_only=validate_only))
        ((_, code, *rest),) = answer.topic_errors
        _raise_for(code, *rest)

    def delete_topic(self, name: str) -> None:
        ((_, code),) = self._loop.run(self._admin.delete_topics([name])).topic_error_codes
        _raise_for(code)

    def list_topics(self) -> set[str]:
        return set(self._loop.run(self._admin.list_topics()))

    def describe_topic(self, name: str) -> TopicDescription:
        (found,) = self._loop.run(self._admin.describe_topics([name]))
        _raise_for(found["error_code"])
        return TopicDescription(
            found["topic"],
            {
                each["partition"]: (each["leader"], each["replicas"], each["isr"])
                for each in found["partitions"]
            },
        )

    def create_partitions(self, topic: str, total: int, *, validate_only: bool = False) -> None:
        new = {topic: aka.NewPartitions(total)}
        try:
            self._loop.run(self._admin.create_partitions(new, validate_only=validate_only))
        except errors.KafkaError as error:
            raise AdminError(code_of(error), str(error)) from error

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (answer,) = self._loop.run(self._admin.describe_configs([resource]))
        (found,) = answer.to_object()["resources"]
        _raise_for(found["error_code"], found["error_message"])
        return {each["config_names"]: each["config_value"] for each in found["config_entries"]}

    def set_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(configs))
        (answer, *_) = self._loop.run(self._admin.alter_configs([resource]))
        (found,) = answer.to_object()["resources"]
        _raise_for(found["error_code"], found["error_message"])

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        place = aiokafka.TopicPartition(topic, partition)
        asked = {place: aka.RecordsToDelete(before_offset=before_offset)}
        try:
            return int(self._loop.run(self._admin.delete_records(asked))[place])
        except errors.KafkaError as error:
            raise AdminError(code_of(error), str(error)) from error

    def close(self) -> None:
        self._loop.run(self._admin.close())
        self._loop.close()


def _raise_for(code: int, message: str | None = None) -> None:
    if code:
        raise AdminError(code, str(message))


class Aio:
    """The asyncio client."""

    name = "aiokafka"

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
        return AioProducer(
            {
                "bootstrap_servers": bootstrap_servers,
                "acks": acks,
                "linger_ms": linger_ms,
                "compression_type": None if compression == "none" else compression,
                "enable_idempotence": idempotent,
                "max_request_size": 10_000_000,
                "request_timeout_ms": delivery_timeout_ms,
                "retry_backoff_ms": 20,
            }
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
        return AioConsumer(
            {
                "bootstrap_servers": bootstrap_servers,
                "enable_auto_commit": False,
                "auto_offset_reset": reset,
                "fetch_max_wait_ms": max_wait_ms,
                "isolation_level": "read_committed" if read_committed else "read_uncommitted",
                "fetch_min_bytes": min_bytes,
                "max_partition_fetch_bytes": max_partition_bytes,
                "retry_backoff_ms": 20,
            }
        )

    def admin(self, bootstrap_servers: str) -> Admin:
        return AioAdmin(bootstrap_servers)
