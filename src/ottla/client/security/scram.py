"""SCRAM for a client (RFC 5802, RFC 7677): both sides prove that they know the password.

The server's messages are checked. Its nonce must begin with ours, its iteration count has a
minimum and a maximum, and its signature proves that it knows the password. As in Kafka, names
and passwords are UTF-8 without SASLprep.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from binascii import Error as BadBase64

FEWEST_ITERATIONS = 4096
MOST_ITERATIONS = 1_000_000
_GS2_HEADER = "n,,"


class ScramError(ValueError):
    """A message of the server is wrong."""


class ScramClient:
    """One login: call `first`, `final` with the server's first answer, `verify` with its second."""

    def __init__(self, hash_name: str, username: str, password: str, nonce: str = "") -> None:
        self._hash = hash_name
        self._password = password.encode()
        self._nonce = nonce or b64encode(secrets.token_bytes(24)).decode()
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={escaped},r={self._nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        """Return the first message to the server."""
        return f"{_GS2_HEADER}{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """Return the proof for the server's first message. Raise ScramError if that is wrong."""
        fields = _fields(server_first)
        nonce = fields.get("r", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the server's nonce does not begin with ours")
        salted = hashlib.pbkdf2_hmac(
            self._hash, self._password, _decoded(fields, "s"), _iterations(fields)
        )
        without_proof = f"c={b64encode(_GS2_HEADER.encode()).decode()},r={nonce}"
        signed = b",".join((self._first_bare.encode(), server_first, without_proof.encode()))
        return f"{without_proof},p={b64encode(self._proof(salted, signed)).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Raise ScramError if the server does not prove that it knows the password."""
        fields = _fields(server_final)
        if "e" in fields:
            raise ScramError(fields["e"])
        if not hmac.compare_digest(_decoded(fields, "v"), self._server_signature):
            raise ScramError("the server's signature is wrong: it does not know the password")

    def _proof(self, salted: bytes, signed: bytes) -> bytes:
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        client_signature = self._hmac(stored_key, signed)
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return bytes(a ^ b for a, b in zip(client_key, client_signature, strict=True))

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _fields(message: bytes) -> dict[str, str]:
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise ScramError("the server's message is not text") from None
    return {part[0]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _decoded(fields: dict[str, str], name: str) -> bytes:
    try:
        return b64decode(fields[name], validate=True)
    except (KeyError, BadBase64):
        raise ScramError(f"the server's message has no valid {name}=") from None


def _iterations(fields: dict[str, str]) -> int:
    text = fields.get("i", "")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not FEWEST_ITERATIONS <= number <= MOST_ITERATIONS:
        raise ScramError(
            f"the server requests {text or 'no'} iterations: expected"
            f" {FEWEST_ITERATIONS} to {MOST_ITERATIONS}"
        )
    return number
