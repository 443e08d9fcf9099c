"""TLS and SASL against Apache Kafka itself: the client, and the commands with --command-config."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from secured_kafka import SCRAM, SESSION_MS, USER, Secured, login, start_secured

from ottla.client.errors import AuthenticationFailed, ClientError
from ottla.client.settings import client_settings

START_TIMEOUT_S = 60


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with start_secured(tmp_path_factory.mktemp("kafka")) as running:
        yield running


def token(name: str) -> str:
    """Return an unsigned token, as Kafka's default validator takes them."""
    now = time.time()

    def part(claims: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")

    claims = {"sub": name, "iat": now, "exp": now + 3600}
    return f"{part({'alg': 'none'})}.{part(claims)}."


def ask(properties: dict[str, str]) -> None:
    """Open a client and have it talk to the broker that the cluster's metadata names."""
    with client_settings(properties).connect() as client:
        deadline = client.deadline("the test")
        client.metadata([], deadline)
        (node,) = client.brokers
        client.node(node, deadline)


@pytest.mark.parametrize("versions", ["TLSv1.2", "TLSv1.3"])
def test_tls(kafka: Secured, versions: str) -> None:
    ask(kafka.properties("SSL", ssl_enabled_protocols=versions))


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
def test_logins(kafka: Secured, listener: str, mechanism: str) -> None:
    ask(kafka.properties(listener) | login(mechanism))
    with pytest.raises(AuthenticationFailed, match=f"refused user {USER} .{mechanism}.*Check"):
        ask(kafka.properties(listener) | login(mechanism, "wrong"))


def test_tokens(kafka: Secured) -> None:
    bearer = {"sasl.mechanism": "OAUTHBEARER"}
    ask(kafka.properties("SASL_SSL") | bearer | {"sasl.oauthbearer.token": token("alice")})
    with pytest.raises(AuthenticationFailed, match="refused the token"):
        ask(kafka.properties("SASL_SSL") | bearer | {"sasl.oauthbearer.token": "x.y.z"})


def test_client_certificates(kafka: Secured) -> None:
    def with_key(name: str) -> dict[str, str]:
        path = str(kafka.directory / name)
        return kafka.properties("MTLS", ssl_keystore_type="PEM", ssl_keystore_location=path)

    ask(with_key("client.pem"))
    with pytest.raises(ClientError, match="client certificate"):
        ask(kafka.properties("MTLS"))
    with pytest.raises(ClientError, match="client certificate"):
        ask(with_key("stranger.pem"))


def test_mistakes_are_explained(kafka: Secured) -> None:
    plain = {"security.protocol": "PLAINTEXT"}
    with pytest.raises(ClientError, match=r"set security\.protocol"):
        ask(kafka.properties("SSL") | plain)
    with pytest.raises(ClientError, match=r"set security\.protocol"):
        ask(kafka.properties("SASL_PLAINTEXT") | plain)
    with pytest.raises(ClientError, match="does not use TLS"):
        ask(kafka.properties("PLAINTEXT") | {"security.protocol": "SSL"})
    with pytest.raises(AuthenticationFailed, match="does not support SASL"):
        ask(kafka.properties("SSL") | {"security.protocol": "SASL_SSL"} | login("PLAIN"))
    with pytest.raises(ClientError, match=r"certificate, or a login with SASL_SSL"):
        ask(kafka.properties("SASL_SSL") | {"security.protocol": "SSL"})
    with pytest.raises(AuthenticationFailed, match="not signed by a CA in"):
        ask(kafka.properties("SSL") | {"ssl.truststore.location": ""})


def test_a_session_is_renewed(kafka: Secured) -> None:
    settings = client_settings(kafka.properties("SASL_PLAINTEXT") | login("SCRAM-SHA-256"))
    with settings.connect() as client:
        connection = client.any(client.deadline("the test"))
        end = time.monotonic() + 2.5 * SESSION_MS / 1000
        while time.monotonic() < end:
            client.metadata([], client.deadline("the test"))
            time.sleep(0.1)
        # A connection whose session has ended is closed by the broker: this is the first one.
        (node,) = client.brokers
        assert client.node(node, client.deadline("the test")) is connection


def test_the_commands(kafka: Secured, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    properties = kafka.properties("SASL_SSL") | login("SCRAM-SHA-512")
    config.write_text(
        "".join(f"{name}={text}\n" for name, text in properties.items()).replace("\\", "\\\\")
    )

    def ottla(*arguments: str, text: str = "") -> str:
        command = [sys.executable, "-m", "ottla.cli.main", *arguments]
        done = subprocess.run(
            [*command, "--command-config", str(config)],
            input=text,
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    lines = [f"line {number}" for number in range(1000)]
    ottla("topics", "create", "secured", "--partitions", "2")
    ottla("produce", "secured", text="\n".join(lines) + "\n")
    read = ottla("consume", "secured", "--from-beginning", "--max-messages", "1000")
    assert sorted(read.splitlines()) == sorted(lines)
    assert "secured" in ottla("topics", "list")
    ottla("groups", "list")
