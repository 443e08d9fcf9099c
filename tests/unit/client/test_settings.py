"""Client properties with Kafka's names, and the messages for wrong values."""

from __future__ import annotations

import pickle

import pytest

from ottla.client.settings import PLAINTEXT, ClientSettings, SettingError, client_settings


def test_defaults() -> None:
    assert client_settings({"bootstrap.servers": "a:1,b:2"}) == ClientSettings(
        "a:1,b:2", "ottla", "", 30_000, PLAINTEXT
    )


def test_every_property_is_read() -> None:
    settings = client_settings(
        {
            "bootstrap.servers": "a:1",
            "client.id": "me",
            "client.rack": "r1",
            "request.timeout.ms": "1500",
            "security.protocol": "plaintext",
            "fetch.max.bytes": "somebody else's",
        }
    )
    assert settings == ClientSettings("a:1", "me", "r1", 1500)


def test_settings_and_their_errors_can_be_pickled() -> None:
    settings = ClientSettings("a:1", "me")
    assert pickle.loads(pickle.dumps(settings)) == settings
    error = pickle.loads(pickle.dumps(SettingError("a.name", "it is wrong")))
    assert (error.name, error.why, str(error)) == (
        "a.name",
        "it is wrong",
        "a.name: it is wrong",
    )


@pytest.mark.parametrize(
    ("properties", "name", "words"),
    [
        ({}, "bootstrap.servers", "missing"),
        ({"bootstrap.servers": " , "}, "bootstrap.servers", "empty"),
        ({"bootstrap.servers": "a:port"}, "bootstrap.servers", "no valid port"),
        ({"request.timeout.ms": "0"}, "request.timeout.ms", "greater than 0"),
        ({"request.timeout.ms": "soon"}, "request.timeout.ms", "'soon'"),
        ({"request.timeout.ms": str(2**31)}, "request.timeout.ms", "should be a number"),
        ({"security.protocol": "TLS"}, "security.protocol", "SASL_SSL"),
    ],
)
def test_a_wrong_property_is_named(properties: dict[str, str], name: str, words: str) -> None:
    given = properties if "bootstrap.servers" in name else {"bootstrap.servers": "a", **properties}
    with pytest.raises(SettingError, match=words) as caught:
        client_settings(given)
    assert caught.value.name == name
