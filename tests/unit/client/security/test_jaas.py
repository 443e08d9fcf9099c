from __future__ import annotations

import pytest

from ottla.client.security.jaas import parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} required username="u" password="p";', {"username": "u", "password": "p"}),
        (f"{PLAIN} required username='u' password=p ;  ", {"username": "u", "password": "p"}),
        (f'{PLAIN} required\n  username="u"\n  password="a \\"b\\" \\\\ ; c";', None),
        (f"{PLAIN} required;", {}),
        ('M REQUIRED extension_x.y="1";', {"extension_x.y": "1"}),
        (f'{PLAIN} required username = "u";', {"username": "u"}),
    ],
)
def test_options_are_read(text: str, options: dict[str, str] | None) -> None:
    wanted = {"username": "u", "password": 'a "b" \\ ; c'} if options is None else options
    assert parse_jaas(text) == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('username="u" password="secret";', "no login module"),
        (f'{PLAIN} username="u" password="secret";', "no login module"),
        (f'{PLAIN} required username="u" password="secret"', "semicolon after password"),
        (f'{PLAIN} required username="u" password="secret;', "malformed after username"),
        (f'{PLAIN} required username="u"; password="secret";', "malformed after username"),
        ("", "no login module"),
    ],
)
def test_what_is_wrong_is_said_without_the_secret(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        parse_jaas(text)
    assert "secret" not in str(caught.value)
