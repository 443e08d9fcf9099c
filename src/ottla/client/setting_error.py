"""The error for an invalid client property."""

from __future__ import annotations


class SettingError(ValueError):
    """The property `name` is invalid. `why` says what is wrong and what is expected."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)  # both, so that it can be pickled
        self.name = name
        self.why = why

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"
