from __future__ import annotations

import pytest

from ottla.config.broker import COMPONENTS, BrokerConfig
from ottla.config.component import Component, setting
from ottla.config.definition import AtLeast, ConfigError, Values
from ottla.config.topic import LogConfig


def _larger(values: Values) -> int:
    if values["some.limit"] == 13:
        raise ConfigError("some.limit must not be 13")
    return max(int(str(values["some.limit"])), 10)


class Limits(Component):
    """A component as broker_settings/ declares them."""

    some_limit: int = setting("some.limit", "int", default=5, validator=AtLeast(1), doc="A limit.")
    larger_limit: int = setting("larger.limit", "int", default=0, doc="Larger.", resolve=_larger)
    even_larger: int = setting("even.larger", "int", default=0, doc="Larger.", resolve=_larger)

    def check(self) -> list[str]:
        return ["some.limit is 7"] if self.some_limit == 7 else []


def test_fields_have_their_defaults_and_can_be_given() -> None:
    assert (Limits().some_limit, Limits().larger_limit) == (5, 10)
    assert Limits(some_limit=6).some_limit == 6
    assert repr(Limits()) == "Limits(some_limit=5, larger_limit=10, even_larger=10)"


def test_equal_fields_are_equal_configs() -> None:
    assert Limits() == Limits(some_limit=5)
    assert hash(Limits()) == hash(Limits(some_limit=5))
    assert Limits() != Limits(some_limit=6)
    assert Limits() != LogConfig()


def test_a_config_is_frozen_and_has_no_other_attributes() -> None:
    limits = Limits()
    for name in ("some_limit", "other"):
        with pytest.raises(AttributeError, match=f"Limits is frozen: cannot assign {name}"):
            setattr(limits, name, 1)
    with pytest.raises(AttributeError, match="cannot delete some_limit"):
        del limits.some_limit
    assert not hasattr(limits, "__dict__")
    assert not hasattr(BrokerConfig(), "__dict__")


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(TypeError, match="Limits has the fields some_limit, larger_limit"):
        Limits(other=1)  # type: ignore[call-arg]


def test_values_are_resolved_and_checked() -> None:
    values = {"some.limit": 11, "larger.limit": 0, "even.larger": 0}
    assert Limits.parse(values) == Limits(some_limit=11, larger_limit=11, even_larger=11)
    with pytest.raises(ConfigError, match=r"^some.limit is 7$"):
        Limits.parse(values | {"some.limit": 7})


def test_an_error_that_several_fields_have_is_reported_once() -> None:
    with pytest.raises(ConfigError) as caught:
        Limits.parse({"some.limit": 13, "larger.limit": 0, "even.larger": 0})
    assert caught.value.errors == ("some.limit must not be 13",)


def test_a_field_has_the_name_of_its_setting() -> None:
    with pytest.raises(AssertionError, match=r"limit has another name than some\.limit"):

        class Wrong(Component):
            limit: int = setting("some.limit", "int", default=5, doc="A limit.")


@pytest.mark.parametrize("component", [*COMPONENTS.values(), LogConfig])
def test_default_values_give_the_default_config(component: type[Component]) -> None:
    defaults = {name: setting.default for name, setting in component.settings.items()}
    assert component.parse(defaults) == component()


def test_every_field_of_a_component_is_a_setting() -> None:
    components: list[type[Component]] = [*COMPONENTS.values(), LogConfig]
    for component in components:
        assert list(component.declared) == list(component.__annotations__)
