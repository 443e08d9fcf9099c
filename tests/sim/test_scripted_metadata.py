"""What clients are told about topics while the disk gives trouble."""

from __future__ import annotations

from ottla.model.errors import ErrorCode
from ottla.sim.script import Script
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.support.sim_script import TOPIC


def code_of(script: Script) -> int:
    """Ask for the topic, which is created thereby."""
    reply = script.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 9)
    assert isinstance(reply, MetadataResponse)
    return reply.topics[0].error_code


def test_a_topic_that_could_not_be_created_is_once_there_is_room() -> None:
    script = Script()
    script.faults.volumes[0].free_bytes = 0
    assert code_of(script) == ErrorCode.KAFKA_STORAGE_ERROR
    script.faults.heal()
    assert code_of(script) == ErrorCode.NONE
    assert code_of(script) == ErrorCode.NONE
