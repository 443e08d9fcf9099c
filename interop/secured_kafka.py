"""An Apache Kafka with TLS and SASL listeners, for tests of secured clients."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
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

LISTENERS = ("PLAINTEXT", "SSL", "MTLS", "SASL_PLAINTEXT", "SASL_SSL")
PROTOCOLS = {"MTLS": "SSL"}
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD = "alice", 'a "quoted" secret'
SESSION_MS = 1_500


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
    """Write a key as Kafka wants it (PKCS #8) and its certificate into one file."""
    issued = ca.issue_cert(identity)
    key = load_pem_private_key(issued.private_key_pem.bytes(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    path = directory / name
    path.write_bytes(key + b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    return path


@contextmanager
def start_secured(directory: Path) -> Iterator[Secured]:
    """Yield a Kafka with all listeners; the test is skipped where there are no jars of it."""
    from harness.broker import Broker, free_port
    from harness.problem import BenchError
    from harness.systems import Kafka

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
