"""TLS and SASL against Apache Kafka itself: the client, and the commands with --command-config."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from ottla.admin.errors import AdminError, AuthenticationFailed
from ottla.admin.settings import client_settings

LISTENERS = ("PLAINTEXT", "SSL", "MTLS", "SASL_PLAINTEXT", "SASL_SSL")
PROTOCOLS = {"MTLS": "SSL"}
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD = "alice", 'a "quoted" secret'
SESSION_MS = 1_500
START_TIMEOUT_S = 60


class Secured(NamedTuple):
    """A running Kafka, the ports of its listeners, and a directory with PEM files."""

    ports: dict[str, int]
    directory: Path

    def properties(self, listener: str, **more: str) -> dict[str, str]:
        named = {name.replace("_", "."): text for name, text in more.items()}
        return {
            "bootstrap.servers": f"127.0.0.1:{self.ports[listener]}",
            "security.protocol": PROTOCOLS.get(listener, listener),
            "ssl.truststore.location": str(self.directory / "ca.pem"),
            "ssl.truststore.type": "PEM",
            "request.timeout.ms": "10000",
        } | named


def write_pem(directory: Path, ca: trustme.CA, name: str, identity: str) -> Path:
    """A key as Kafka wants it (PKCS #8) and its certificate, in one file."""
    issued = ca.issue_cert(identity)
    key = load_pem_private_key(issued.private_key_pem.bytes(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    path = directory / name
    path.write_bytes(key + b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    return path


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    from harness.broker import Broker, free_port
    from harness.problem import BenchError
    from harness.systems import Kafka

    directory = tmp_path_factory.mktemp("kafka")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(directory / "ca.pem"))
    server = write_pem(directory, ca, "server.pem", "127.0.0.1")
    write_pem(directory, ca, "client.pem", "client@example.org")
    write_pem(directory, trustme.CA(), "stranger.pem", "stranger@example.org")
    ports = {name: free_port() for name in LISTENERS}

    class SecuredKafka(Kafka):
        def _properties(self, directory: Path, port: int, controller_port: int) -> dict[str, str]:
            ports["PLAINTEXT"] = port
            common = super()._properties(directory, port, controller_port)
            return common | broker_properties(ports, controller_port, server, server.parent)

        def _tool(self, *arguments: str) -> subprocess.CompletedProcess[str]:
            if arguments[0] == "format":
                user = f'[name={USER},password="{PASSWORD}"]'
                users = [f"{mechanism}={user}" for mechanism in SCRAM]
                arguments += ("--add-scram", users[0], "--add-scram", users[1])
            return super()._tool(*arguments)

    try:
        broker: Broker = SecuredKafka(None).new_broker(directory / "broker")
    except BenchError as error:
        pytest.skip(str(error))
    broker.start()
    try:
        yield Secured(ports, directory)
    finally:
        broker.stop()


def broker_properties(
    ports: dict[str, int], controller_port: int, server: Path, directory: Path
) -> dict[str, str]:
    endpoints = [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
    protocols = [f"{name}:{PROTOCOLS.get(name, name)}" for name in ports]
    quoted = PASSWORD.replace('"', '\\"')
    modules = "org.apache.kafka.common.security"
    logins = {
        "plain": f'{modules}.plain.PlainLoginModule required user_{USER}="{quoted}";',
        "scram-sha-256": f"{modules}.scram.ScramLoginModule required;",
        "scram-sha-512": f"{modules}.scram.ScramLoginModule required;",
        "oauthbearer": f"{modules}.oauthbearer.OAuthBearerLoginModule required"
        ' unsecuredLoginStringClaim_sub="broker";',
    }
    properties = {
        "listeners": ",".join([*endpoints, f"CONTROLLER://127.0.0.1:{controller_port}"]),
        "advertised.listeners": ",".join(endpoints),
        "listener.security.protocol.map": ",".join([*protocols, "CONTROLLER:PLAINTEXT"]),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "listener.name.mtls.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(name.upper() for name in logins),
        "listener.name.sasl_plaintext.connections.max.reauth.ms": str(SESSION_MS),
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        for mechanism, login in logins.items():
            properties[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = login.replace(
                "\\", "\\\\"
            )
    return properties


def login(mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    quoted = password.replace('"', '\\"')
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'Module required username="{USER}" password="{quoted}";',
    }


def token(name: str) -> str:
    """An unsigned token, as Kafka's default validator takes them."""
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
    with pytest.raises(AdminError, match="our certificate"):
        ask(kafka.properties("MTLS"))
    with pytest.raises(AdminError, match="our certificate"):
        ask(with_key("stranger.pem"))


def test_mistakes_are_explained(kafka: Secured) -> None:
    plain = {"security.protocol": "PLAINTEXT"}
    with pytest.raises(AdminError, match=r"set security\.protocol"):
        ask(kafka.properties("SSL") | plain)
    with pytest.raises(AdminError, match=r"set security\.protocol"):
        ask(kafka.properties("SASL_PLAINTEXT") | plain)
    with pytest.raises(AdminError, match="does not speak TLS"):
        ask(kafka.properties("PLAINTEXT") | {"security.protocol": "SSL"})
    with pytest.raises(AuthenticationFailed, match="no login with SASL"):
        ask(kafka.properties("SSL") | {"security.protocol": "SASL_SSL"} | login("PLAIN"))
    with pytest.raises(AdminError, match=r"certificate, or a login with SASL_SSL"):
        ask(kafka.properties("SASL_SSL") | {"security.protocol": "SSL"})
    with pytest.raises(AuthenticationFailed, match="of no CA in"):
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
