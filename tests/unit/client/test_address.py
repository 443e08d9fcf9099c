from __future__ import annotations

import pytest

from ottla.client.address import Address, parse_addresses


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:19092", [("localhost", 19092)]),
        ("localhost", [("localhost", 9092)]),
        ("a:1, b:2 ,", [("a", 1), ("b", 2)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_lists_of_addresses(text: str, expected: list[tuple[str, int]]) -> None:
    assert parse_addresses(text) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "empty"),
        (" , ", "empty"),
        ("host:0", "valid port"),
        ("host:65536", "valid port"),
        ("host:http", "valid port"),
        ("host:٣", "valid port"),
        (":9092", "no host"),
        ("::1", r"\[::1\]:9092"),
    ],
)
def test_mistakes_are_named(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_addresses(text)


def test_an_address_prints_as_it_is_written() -> None:
    assert str(Address("::1", 9092)) == "[::1]:9092"
    assert str(Address("broker.example", 9092)) == "broker.example:9092"
