"""Broker settings of fetch requests."""

from __future__ import annotations

from ottla.config.component import Component, setting
from ottla.config.definition import AtLeast


class FetchConfig(Component):
    """The limits of fetch sessions and responses."""

    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        "int",
        default=1000,
        validator=AtLeast(0),
        doc="The maximum number of fetch sessions.",
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        "int",
        default=55 * 1024 * 1024,
        validator=AtLeast(1024),
        doc="The maximum size of a fetch response.",
    )
