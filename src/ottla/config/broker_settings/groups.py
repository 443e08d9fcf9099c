"""Broker settings of classic groups."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.config.component import Component, setting
from ottla.config.definition import MAX_INT, AtLeast


class GroupConfig(Component):
    """The limits of classic groups."""

    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        "int",
        default=3000,
        validator=AtLeast(0),
        doc=(
            "How long an empty group waits for more members after the first one joins. Each new"
            " member extends the wait, up to the rebalance timeout."
        ),
    )
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms",
        "int",
        default=6000,
        validator=AtLeast(1),
        doc="The minimum session timeout that a member of a classic group may request.",
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms",
        "int",
        default=1800000,
        validator=AtLeast(1),
        doc="The maximum session timeout that a member of a classic group may request.",
    )
    group_max_size: int = setting(
        "group.max.size",
        "int",
        default=MAX_INT,
        validator=AtLeast(1),
        doc="The maximum number of members of a classic group.",
    )

    def check(self) -> Iterator[str]:
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            yield (
                f"group.max.session.timeout.ms ({self.group_max_session_timeout_ms}) must be at"
                f" least group.min.session.timeout.ms ({self.group_min_session_timeout_ms})"
            )
