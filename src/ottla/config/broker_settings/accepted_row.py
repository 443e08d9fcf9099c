"""`Accepted`, which declares broker settings without effect, and `Unsupported`, their validator."""

from __future__ import annotations

from ottla.config.definition import READ_ONLY, Setting, Type, UpdateMode, Validator, Value


class Accepted:
    """Creates settings that have no effect, all for the same reason."""

    __slots__ = ("internal", "reason")

    def __init__(self, reason: str, *, internal: bool = False) -> None:
        self.reason = reason
        self.internal = internal

    def __call__(
        self,
        name: str,
        kind: Type,
        default: Value,
        validator: Validator | None = None,
        update: UpdateMode = READ_ONLY,
    ) -> Setting:
        return Setting(
            name, kind, default, validator, self.reason, "low", update, False, self.internal
        )


class Unsupported(Validator):
    """Only the default: ignoring another value would be dangerous."""

    __slots__ = ("default",)

    def __init__(self, default: Value) -> None:
        self.default = default

    def accepts(self, value: Value) -> bool:
        return value in ("", self.default)

    def reason(self, setting: str, value: Value) -> str:
        return "It is not supported by this broker, and must not be ignored"

    def __str__(self) -> str:
        return "the default only"
