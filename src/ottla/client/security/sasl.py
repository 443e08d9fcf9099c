"""SASL login (KIP-43, KIP-152): a handshake for the mechanism, then the messages of the mechanism
in SaslAuthenticate requests.

If the broker refuses the login, AuthenticationFailed says why. It is not retried.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar

from ottla.client.address import Address
from ottla.client.errors import AuthenticationFailed, UnsupportedByBroker, error_name
from ottla.client.security.sasl_settings import OAUTHBEARER, PLAIN, SCRAM_SHA_256, Sasl
from ottla.client.security.scram import ScramClient, ScramError
from ottla.model.errors import ErrorCode
from ottla.wire.message import Message
from ottla.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

M = TypeVar("M", bound=Message)
_ABORT = b"\x01"


class Ask(Protocol):
    """Sends a request and waits for its response."""

    def __call__(self, request: Message, response: type[M], /) -> M: ...


def authenticate(sasl: Sasl, address: Address, ask: Ask) -> int:
    """Log in. Return the lifetime of the session in ms, or 0 if it has no limit."""
    _agree(sasl, address, ask)
    login = _Login(sasl, address, ask)
    if sasl.mechanism == PLAIN:
        login.say(f"\0{sasl.username}\0{sasl.password}".encode())
    elif sasl.mechanism == OAUTHBEARER:
        _bearer(sasl, login)
    else:
        _scram(sasl, login)
    return login.session_lifetime_ms


class _Login:
    """The exchange of one mechanism's messages."""

    def __init__(self, sasl: Sasl, address: Address, ask: Ask) -> None:
        self._sasl = sasl
        self._address = address
        self._ask = ask
        self.session_lifetime_ms = 0

    def say(self, message: bytes) -> bytes:
        """Send one message and return the answer. Raise AuthenticationFailed if it is an error."""
        request = SaslAuthenticateRequest(auth_bytes=message)
        response = self._ask(request, SaslAuthenticateResponse)
        if response.error_code != ErrorCode.NONE:
            raise self.failed(response.error_message or error_name(response.error_code))
        self.session_lifetime_ms = response.session_lifetime
        return response.auth_bytes

    def failed(self, reason: str) -> AuthenticationFailed:
        """Return the error to raise. It names the user and the mechanism."""
        sasl = self._sasl
        who, look = (
            (f"user {sasl.username}", "the user name and password")
            if sasl.username
            else ("the token", "that it is for this cluster and has not expired")
        )
        return AuthenticationFailed(
            f"{self._address} refused {who} ({sasl.mechanism}): {reason}. Check {look}."
        )


def _agree(sasl: Sasl, address: Address, ask: Ask) -> None:
    try:
        response = ask(SaslHandshakeRequest(mechanism=sasl.mechanism), SaslHandshakeResponse)
    except UnsupportedByBroker:
        raise AuthenticationFailed(_NO_SASL.format(address=address)) from None
    if response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationFailed(_NO_SASL.format(address=address))
    if response.error_code != ErrorCode.NONE:
        offered = ", ".join(response.mechanisms) or "none"
        raise AuthenticationFailed(
            f"{address} does not support {sasl.mechanism}"
            f" ({error_name(response.error_code)}): set sasl.mechanism to one of: {offered}"
        )


_NO_SASL = (
    "{address} does not support SASL: use the port of a SASL listener, or set"
    " security.protocol to PLAINTEXT or SSL"
)


def _scram(sasl: Sasl, login: _Login) -> None:
    hash_name = "sha256" if sasl.mechanism == SCRAM_SHA_256 else "sha512"
    client = ScramClient(hash_name, sasl.username, sasl.password)
    try:
        client.verify(login.say(client.final(login.say(client.first()))))
    except ScramError as error:
        raise login.failed(str(error)) from None


def _bearer(sasl: Sasl, login: _Login) -> None:
    token = sasl.token or _read_token(sasl.token_file)
    extensions = "".join(f"{name}={value}\x01" for name, value in sasl.extensions)
    problem = login.say(f"n,,\x01auth=Bearer {token}\x01{extensions}\x01".encode())
    if problem:
        # The server sends the reason as JSON, and ends the login after the client's next message.
        login.say(_ABORT)
        raise login.failed(problem.decode("utf-8", "replace"))


def _read_token(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise AuthenticationFailed(f"cannot read the token in {path}: {error}") from None
