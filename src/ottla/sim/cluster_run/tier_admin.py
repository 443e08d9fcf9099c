"""An administrator of topics in the remote tier: it creates and deletes them under the same names.

Mostly it waits until something of a topic is copied: otherwise there is little to delete. It is
done only when it has deleted some topics, if need be after everything is healed.

It also turns their tier off and on again. Turning it off must be refused unless
remote.log.delete.on.disable says that the remote part is deleted.
"""

from __future__ import annotations

from random import Random as Generator
from typing import Final

from ottla.metadata.image import MetadataImage, TopicImage
from ottla.model.errors import ErrorCode
from ottla.sim.cluster_run.admin import TIMEOUT_MS, TOPIC_RESOURCE, ClusterAdmin, ClusterRunOfAdmin
from ottla.sim.cluster_run.clients import new_topic
from ottla.sim.cluster_run.topics import COLD, is_tiered
from ottla.sim.network.exchange import Exchange
from ottla.wire.message import Message
from ottla.wire.messages.create_topics import CreateTopicsRequest
from ottla.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

_NAMES: Final = (f"{COLD}0", f"{COLD}1")
_SEGMENT_BYTES: Final = 500
_ENABLE: Final = "remote.storage.enable"
_DELETE: Final = "remote.log.delete.on.disable"
_SET, _UNSET = 0, 1
_WAITS: Final = 0.9
"""How often it leaves a topic in the tier alone of which nothing is copied."""
_EAGER: Final = 0.8
"""How often it creates what is missing, before it does anything else."""
_LEAST_DELETIONS: Final = 2
"""How many topics it deletes at least."""


class TierAdmin(ClusterAdmin):
    """Does one thing after the other."""

    THINK_MS = (50.0, 200.0, 700.0)
    EXPECTED = ClusterAdmin.EXPECTED | {ErrorCode.INVALID_CONFIG}

    def __init__(self, name: str, environment: ClusterRunOfAdmin, chance: Generator) -> None:
        super().__init__(name, environment, chance)
        self._deletions = 0
        """How many topics it has deleted."""
        self._leaves_topics = chance.random() < 0.7
        """Whether there are topics with all names in the end."""
        delete, change, misconfigure = self._delete_one, self._change_tier, self._misconfigure
        self._actions = delete, delete, change, change, misconfigure

    @property
    def _has_deleted_enough(self) -> bool:
        return self._deletions >= _LEAST_DELETIONS

    @property
    def _missing(self) -> list[str]:
        return [name for name in _NAMES if name not in self.environment.image.topics]

    @property
    def _missing_at_the_end(self) -> list[str]:
        return self._missing if self._leaves_topics else []

    def _create_again(self, image: MetadataImage) -> tuple[Message, int] | None:
        if not self._missing:
            return None
        topic = new_topic(
            self.chance.choice(self._missing),
            self.chance.choice((1, 2)),
            self.chance.choice((1, 2)),
            segment_bytes=_SEGMENT_BYTES,
            is_tiered=True,
        )
        return CreateTopicsRequest(topics=[topic], timeout=TIMEOUT_MS), 7

    @property
    def is_done(self) -> bool:
        return super().is_done and self._has_deleted_enough and not self._missing_at_the_end

    def act(self) -> None:
        """Create what is missing, mostly at once: the same names come again soon."""
        if self.is_done:
            return
        image = self.environment.image
        is_ending = self.is_finished and self._has_deleted_enough
        found = self._create_again(image) if is_ending or self.chance.random() < _EAGER else None
        if found is None and not is_ending:
            found = self.chance.choice(self._actions)(image)
        if found is not None:
            self.ask(*found)

    def received(self, exchange: Exchange) -> None:
        super().received(exchange)
        if isinstance(exchange.reply, DeleteTopicsResponse):
            (topic,) = exchange.reply.responses
            self._deletions += not topic.error_code

    def _delete_one(self, image: MetadataImage) -> tuple[Message, int] | None:
        topic = self._one(image, tiered=None)
        if topic is None:
            return None
        state = DeleteTopicState(name=topic.name)
        if self.chance.random() < 0.5:
            state = DeleteTopicState(name=None, topic_id=topic.topic_id)
        return DeleteTopicsRequest(topics=[state], timeout=TIMEOUT_MS), 6

    def _change_tier(self, image: MetadataImage) -> tuple[Message, int] | None:
        """Turn the tier of a topic off, or on again."""
        topic = self._one(image, tiered=None)
        if topic is None:
            return None
        if is_tiered(image, topic.name):
            self.environment.tier_turned_off(topic.topic_id)
            return _settings(topic, (_ENABLE, "false"), (_DELETE, "true"))
        return _settings(topic, (_ENABLE, "true"), (_DELETE, self.chance.choice(("false", None))))

    def _misconfigure(self, image: MetadataImage) -> tuple[Message, int] | None:
        """Turn the tier of a topic off without a word about its remote part."""
        topic = self._one(image, tiered=True)
        off = self.chance.choice(("false", None))
        return None if topic is None else _settings(topic, (_ENABLE, off))

    def _one(self, image: MetadataImage, *, tiered: bool | None) -> TopicImage | None:
        """Return one of the topics, if `tiered` is given one whose tier is on or off."""
        topics = [image.topics[name] for name in _NAMES if name in image.topics]
        found = [each for each in topics if tiered in (None, is_tiered(image, each.name))]
        if self.chance.random() < _WAITS:
            copied = self.environment.is_copied
            found = [e for e in found if copied(e.topic_id) or not is_tiered(image, e.name)]
        return self.chance.choice(found) if found else None


def _settings(topic: TopicImage, *settings: tuple[str, str | None]) -> tuple[Message, int]:
    configs = [
        AlterableConfig(name=name, config_operation=_UNSET if value is None else _SET, value=value)
        for name, value in settings
    ]
    resource = AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic.name, configs=configs
    )
    return IncrementalAlterConfigsRequest(resources=[resource]), 1
