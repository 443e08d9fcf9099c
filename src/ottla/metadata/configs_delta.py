"""Changes of dynamic settings, by resource."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.metadata.image import MetadataImage
from ottla.metadata.records import ConfigRecord
from ottla.model.config_resources import ResourceType


class ConfigsDelta:
    """The resources whose settings changed."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self.changed: dict[tuple[int, str], dict[str, str]] = {}
        """All settings of each changed resource (type, name), as they are after the delta."""

    def set(self, record: ConfigRecord) -> None:
        """Set one setting, or remove it if the record has no value."""
        key = record.resource_type, record.resource_name
        settings = self.changed.get(key)
        if settings is None:
            settings = self.changed[key] = dict(self._image.configs.get(key, ()))
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value

    def remove_topic(self, name: str) -> None:
        """Remove all settings of a topic that is deleted."""
        key = ResourceType.TOPIC, name
        if key in self.changed or key in self._image.configs:
            self.changed[key] = {}

    def changed_names(self, resource_type: int) -> list[str]:
        """Return the changed resources of one type."""
        return [name for kind, name in self.changed if kind == resource_type]

    def configs(self) -> Mapping[tuple[int, str], Mapping[str, str]]:
        """Return the settings of all resources after the delta."""
        configs = dict(self._image.configs)
        for key, settings in self.changed.items():
            if settings:
                configs[key] = settings
            else:
                configs.pop(key, None)
        return configs
