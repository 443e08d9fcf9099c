"""The error of a client property that cannot be used as it is."""

from __future__ import annotations


class SettingError(ValueError):
    """A property of this name is wrong; `why` says in what way and what would be right."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)  # both, so that it can be pickled
        self.name = name
        self.why = why

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"
