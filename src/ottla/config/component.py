"""Frozen dataclasses of settings: one class for each component that reads settings.

A component declares its settings as fields. The declaration has everything about the setting:

    class OffsetsConfig(Component):
        offsets_retention_minutes: int = setting(
            "offsets.retention.minutes", "int", default=10080, validator=AtLeast(1), doc="..."
        )

To add a setting, add such a field. The field has Kafka's name with underscores.

Type checkers treat these classes as frozen dataclasses with keyword arguments (PEP 681), and they
have slots. They do not use the module `dataclasses`: importing it (with `inspect`) and creating
the classes would add 20 ms to the start of a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn, TypeVar, cast, dataclass_transform, overload

from ottla.config.definition import (
    READ_ONLY,
    ConfigError,
    Importance,
    Setting,
    Synonym,
    Type,
    UpdateMode,
    Validator,
    Value,
    Values,
)

T = TypeVar("T")
ValueT = TypeVar("ValueT", bound=Value)
ComponentT = TypeVar("ComponentT", bound="Component")


@overload
def setting(
    name: str,
    type: Type,
    *,
    default: ValueT,
    validator: Validator | None = None,
    doc: str,
    importance: Importance = "medium",
    update: UpdateMode = READ_ONLY,
    effective: bool = True,
    internal: bool = False,
    synonyms: tuple[Synonym, ...] = (),
) -> ValueT: ...


@overload
def setting(
    name: str,
    type: Type,
    *,
    default: Value,
    validator: Validator | None = None,
    doc: str,
    importance: Importance = "medium",
    update: UpdateMode = READ_ONLY,
    effective: bool = True,
    internal: bool = False,
    resolve: Callable[[Values], T],
    synonyms: tuple[Synonym, ...] = (),
) -> T: ...


def setting(
    name: str,
    type: Type,
    *,
    default: Value,
    validator: Validator | None = None,
    doc: str,
    importance: Importance = "medium",
    update: UpdateMode = READ_ONLY,
    effective: bool = True,
    internal: bool = False,
    resolve: Callable[[Values], object] | None = None,
    synonyms: tuple[Synonym, ...] = (),
) -> object:
    """Declare a field of a component with its setting. `Setting` explains the arguments."""
    return Setting(
        name,
        type,
        default,
        validator,
        doc,
        importance,
        update,
        effective,
        internal,
        resolve,
        synonyms,
    )


class ComponentType(type):
    """Creates the class of a component: the annotated names of its body become slots.

    `stores` set the slots of a new object. `declared` has the settings by field, `settings` by
    Kafka's name, and `defaults` the default of each field that declares a setting.
    """

    stores: dict[str, Callable[[object, object], None]]
    declared: dict[str, Setting]
    settings: dict[str, Setting]
    defaults: dict[str, object]

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, object]
    ) -> ComponentType:
        fields = tuple(cast(dict[str, object], namespace.get("__annotations__", {})))
        declared = {
            field: cast(Setting, namespace.pop(field)) for field in fields if field in namespace
        }
        for field, item in declared.items():
            assert field == item.attribute, f"the field {field} has another name than {item.name}"
        created = super().__new__(cls, name, bases, {**namespace, "__slots__": fields})
        created.stores = {field: created.__dict__[field].__set__ for field in fields}
        created.declared = declared
        created.settings = {item.name: item for item in declared.values()}
        created.defaults = resolved(declared, {s.name: s.default for s in declared.values()})
        return created


def resolved(declared: Mapping[str, Setting], values: Values) -> dict[str, object]:
    """Return the fields with these settings. Raise ConfigError with all mistakes."""
    fields: dict[str, object] = {}
    errors: list[str] = []
    for field, item in declared.items():
        if item.resolve is None:
            fields[field] = values[item.name]
            continue
        try:
            fields[field] = item.resolve(values)
        except ConfigError as error:
            errors.extend(error.errors)
    if errors:
        # Fields that depend on the same setting have the same error.
        raise ConfigError(*dict.fromkeys(errors))
    return fields


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(setting,))
class Component(metaclass=ComponentType):
    """The settings of one component. Without arguments, all have their defaults."""

    def __init__(self, **fields: object) -> None:
        cls = type(self)
        stores = cls.stores
        given = {**cls.defaults, **fields}
        if given.keys() != stores.keys():
            raise TypeError(f"{cls.__name__} has the fields {', '.join(stores)}")
        for field, value in given.items():
            stores[field](self, value)

    @classmethod
    def parse(cls: type[ComponentT], values: Values) -> ComponentT:
        """Return the component for these values. Raise ConfigError with all mistakes."""
        parsed = cls(**resolved(cls.declared, values))
        errors = tuple(parsed.check())
        if errors:
            raise ConfigError(*errors)
        return parsed

    def check(self) -> Iterable[str]:
        """Return an error for each combination of valid values that is not allowed."""
        return ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen: cannot assign {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen: cannot delete {name}")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field) == getattr(other, field) for field in type(self).stores)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, field) for field in type(self).stores))

    def __repr__(self) -> str:
        fields = (f"{field}={getattr(self, field)!r}" for field in type(self).stores)
        return f"{type(self).__name__}({', '.join(fields)})"
