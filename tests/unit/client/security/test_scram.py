"""SCRAM with the example of RFC 7677, and with a server that cheats."""

from __future__ import annotations

import pytest

from ottla.client.security.scram import ScramClient, ScramError

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def example() -> ScramClient:
    return ScramClient("sha256", "user", "pencil", NONCE)


def test_the_example_of_the_rfc() -> None:
    client = example()
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.final(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    client.verify(SERVER_FINAL)


def test_separators_in_a_name_are_escaped() -> None:
    assert ScramClient("sha512", "a=b,c", "p", "N").first() == b"n,,n=a=3Db=2Cc,r=N"


def test_every_login_has_a_nonce_of_its_own() -> None:
    first, second = (ScramClient("sha256", "u", "p").first() for _ in range(2))
    assert first != second
    assert b"," not in first.split(b"r=")[1]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (SERVER_FIRST.replace(b"r=r", b"r=x"), "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (SERVER_FIRST.replace(b"i=4096", b"i=4095"), "4095 iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=2000000000"), "iterations"),
        (SERVER_FIRST.replace(b",i=4096", b""), "no iterations"),
        (SERVER_FIRST.replace(b"s=W22", b"s=***"), "s="),
        (b"\xff\xfe", "not text"),
        (b"", "nonce"),
    ],
)
def test_a_server_whose_first_message_is_wrong(answer: bytes, words: str) -> None:
    with pytest.raises(ScramError, match=words):
        example().final(answer)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"v=AAAA", "does not know the password"),
        (b"e=invalid-proof", "invalid-proof"),
        (b"x", "no valid v="),
    ],
)
def test_a_server_that_does_not_know_the_password(answer: bytes, words: str) -> None:
    client = example()
    client.final(SERVER_FIRST)
    with pytest.raises(ScramError, match=words):
        client.verify(answer)


def test_a_signature_before_any_proof_is_worth_nothing() -> None:
    with pytest.raises(ScramError, match="signature"):
        example().verify(SERVER_FINAL)
