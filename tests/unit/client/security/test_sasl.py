"""SASL logins to a scripted broker that stores passwords like a real one."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from pathlib import Path

import pytest

from ottla.client.cluster import Client
from ottla.client.errors import AuthenticationFailed, ClientError
from ottla.client.security.sasl_settings import Sasl
from ottla.client.security.settings import Security
from ottla.model.errors import ErrorCode
from ottla.wire.api_table import API_INFO, ApiKey
from ottla.wire.message import Message
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.support.scripted_broker import Connect, FakeBroker, Handler, StartBroker

USER, PASSWORD, TOKEN = "ottla=,x", "pässword", "a.b.c"
SALT = b"0123456789abcdef"


class LoginServer:
    """The broker's side of each mechanism, for one user. `lifetime_ms` limits the sessions."""

    def __init__(
        self, broker: FakeBroker, mechanisms: tuple[str, ...], lifetime_ms: int = 0
    ) -> None:
        self.mechanisms = mechanisms
        self.lifetime_ms = lifetime_ms
        self.logins = 0
        self.lies = False
        self._mechanism = ""
        self._said: list[bytes] = []
        self._inside = False
        metadata = broker.handlers[ApiKey.METADATA]
        broker.handlers[ApiKey.SASL_HANDSHAKE] = self.handshake
        broker.handlers[ApiKey.SASL_AUTHENTICATE] = self.authenticate
        broker.handlers[ApiKey.METADATA] = lambda request: self._inside_only(metadata, request)

    def _inside_only(self, metadata: Handler, request: Message) -> Message | None:
        if not self._inside:
            raise ConnectionError
        return metadata(request)

    def handshake(self, request: Message) -> Message:
        assert isinstance(request, SaslHandshakeRequest)
        self._mechanism, self._said = request.mechanism, []
        known = request.mechanism in self.mechanisms
        code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return SaslHandshakeResponse(error_code=code, mechanisms=list(self.mechanisms))

    def authenticate(self, request: Message) -> Message:
        assert isinstance(request, SaslAuthenticateRequest)
        self._said.append(request.auth_bytes)
        answer = {"PLAIN": self._plain, "OAUTHBEARER": self._bearer}.get(
            self._mechanism, self._scram
        )()
        if answer is None:
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            return SaslAuthenticateResponse(error_code=code, error_message="Authentication failed")
        return SaslAuthenticateResponse(auth_bytes=answer, session_lifetime=self.lifetime_ms)

    def _enter(self) -> None:
        self.logins += 1
        self._inside = True

    def _plain(self) -> bytes | None:
        if self._said[-1] != f"\0{USER}\0{PASSWORD}".encode():
            return None
        self._enter()
        return b""

    def _bearer(self) -> bytes | None:
        if self._said[-1] == b"\x01":
            return None
        if self._said[-1] != f"n,,\x01auth=Bearer {TOKEN}\x01pool=p\x01\x01".encode():
            return b'{"status":"invalid_token"}'
        self._enter()
        return b""

    def _scram(self) -> bytes | None:
        name = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[self._mechanism]
        first_bare = self._said[0].removeprefix(b"n,,")
        nonce = first_bare.split(b",r=")[1] + b"server"
        server_first = b"r=%s,s=%s,i=5000" % (nonce, b64encode(SALT))
        if len(self._said) == 1:
            return server_first
        assert first_bare.startswith(b"n=ottla=3D=2Cx,")
        bare, proof = self._said[1].split(b",p=")
        salted = hashlib.pbkdf2_hmac(name, PASSWORD.encode(), SALT, 5000)
        signed = b",".join((first_bare, server_first, bare))
        stored = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
        signature = hmac.digest(stored, signed, name)
        key = bytes(a ^ b for a, b in zip(b64decode(proof), signature, strict=True))
        if hashlib.new(name, key).digest() != stored:
            return None
        self._enter()
        mine = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
        return b"v=" + b64encode(mine[::-1] if self.lies else mine)


MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def login(mechanism: str, password: str = PASSWORD, token: str = TOKEN) -> Security:
    if mechanism == "OAUTHBEARER":
        sasl = Sasl(mechanism, token=token, extensions=(("pool", "p"),))
    else:
        sasl = Sasl(mechanism, USER, password)
    return Security("SASL_PLAINTEXT", sasl=sasl)


def ask(client: Client) -> None:
    client.metadata([], client.deadline("the test"))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_each_mechanism(fake_broker: FakeBroker, connect: Connect, mechanism: str) -> None:
    server = LoginServer(fake_broker, MECHANISMS)
    client = connect(fake_broker.address, security=login(mechanism))
    ask(client)
    ask(client)
    assert server.logins == 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_wrong_secrets_are_refused_once(
    fake_broker: FakeBroker, connect: Connect, mechanism: str
) -> None:
    server = LoginServer(fake_broker, MECHANISMS)
    security = login(mechanism, password="guess", token="x.y.z")
    with pytest.raises(AuthenticationFailed, match=f"refused.*{mechanism}.*Check") as caught:
        ask(connect(fake_broker.address, security=security))
    assert "guess" not in str(caught.value)
    assert server.logins == 0
    assert len(fake_broker.asked(SaslHandshakeRequest)) == 1


def test_a_server_that_does_not_know_the_password(
    fake_broker: FakeBroker, connect: Connect
) -> None:
    LoginServer(fake_broker, MECHANISMS).lies = True
    with pytest.raises(AuthenticationFailed, match="server's signature is wrong"):
        ask(connect(fake_broker.address, security=login("SCRAM-SHA-256")))


def test_a_mechanism_the_broker_lacks(fake_broker: FakeBroker, connect: Connect) -> None:
    LoginServer(fake_broker, ("SCRAM-SHA-512", "PLAIN"))
    with pytest.raises(AuthenticationFailed, match="one of: SCRAM-SHA-512, PLAIN"):
        ask(connect(fake_broker.address, security=login("SCRAM-SHA-256")))


def test_a_listener_without_logins(
    fake_broker: FakeBroker, start_broker: StartBroker, connect: Connect
) -> None:
    illegal = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    fake_broker.handlers[ApiKey.SASL_HANDSHAKE] = lambda request: illegal
    ranges = {key: (info.min_version, info.max_version) for key, info in API_INFO.items()}
    del ranges[ApiKey.SASL_HANDSHAKE]
    for broker in (fake_broker, start_broker(ranges)):
        with pytest.raises(AuthenticationFailed, match=r"does not support SASL.*security.protocol"):
            ask(connect(broker.address, security=login("PLAIN")))


def test_no_login_where_one_is_expected(fake_broker: FakeBroker, connect: Connect) -> None:
    LoginServer(fake_broker, MECHANISMS)
    with pytest.raises(ClientError, match=r"needs TLS or SASL, set security.protocol"):
        ask(connect(fake_broker.address))


def test_a_session_is_renewed_before_it_ends(
    fake_broker: FakeBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("ottla.client.connection.time.monotonic", lambda: now[0])
    server = LoginServer(fake_broker, MECHANISMS, lifetime_ms=10_000)
    client = connect(fake_broker.address, security=login("SCRAM-SHA-256"))
    ask(client)
    now[0] += 7.9
    ask(client)
    assert server.logins == 1
    now[0] += 0.2
    ask(client)
    assert server.logins == 2
    assert len(fake_broker.asked(MetadataRequest)) == 3


def test_a_token_file_is_read_at_each_login(
    fake_broker: FakeBroker, connect: Connect, tmp_path: Path
) -> None:
    LoginServer(fake_broker, MECHANISMS)
    path = tmp_path / "token"
    sasl = Sasl("OAUTHBEARER", token_file=str(path), extensions=(("pool", "p"),))
    security = Security("SASL_PLAINTEXT", sasl=sasl)
    with pytest.raises(AuthenticationFailed, match=f"cannot read the token in {path}"):
        ask(connect(fake_broker.address, security=security))
    path.write_text("old\n")
    with pytest.raises(AuthenticationFailed, match=r"invalid_token|Authentication failed"):
        ask(connect(fake_broker.address, security=security))
    path.write_text(f"{TOKEN}\n")
    ask(connect(fake_broker.address, security=security))
