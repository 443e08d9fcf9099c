"""TLS connections to a real server of the standard library, and the usual mistakes."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme

from ottla.client.address import Address
from ottla.client.cluster import Client
from ottla.client.errors import AuthenticationFailed, ClientError, TimedOut, Unreachable
from ottla.client.security.settings import Security
from ottla.client.security.tls import tls_context
from ottla.client.security.tls_settings import Pem, Tls, tls_settings
from ottla.client.setting_error import SettingError
from ottla.wire.api_table import ApiKey
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.scripted_broker import Connect, FakeBroker, StartBroker

BIG_TOPICS = 3000


class Certificates(NamedTuple):
    ca: trustme.CA
    other_ca: trustme.CA
    directory: Path

    def server(self, *names: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(*(names or ("127.0.0.1",))).configure_cert(context)
        return context

    def file(self, name: str, *blobs: trustme.Blob) -> str:
        path = self.directory / name
        path.write_bytes(b"".join(blob.bytes() for blob in blobs))
        return str(path)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(trustme.CA(), trustme.CA(), tmp_path_factory.mktemp("pem"))


def secured(**properties: str) -> Security:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return Security("SSL", tls_settings(named))


def topics_seen(client: Client) -> list[str | None]:
    return [topic.name for topic in client.metadata(None, client.deadline("the test"))]


@pytest.mark.parametrize("versions", ["TLSv1.2", "TLSv1.3"])
def test_requests_and_large_answers(
    start_broker: StartBroker, connect: Connect, certificates: Certificates, versions: str
) -> None:
    broker = start_broker(context=certificates.server())
    names = [f"topic-{number:05}-{'x' * 100}" for number in range(BIG_TOPICS)]
    for name in names:
        broker.add_topic(name, 1)
    ca = certificates.file("ca.pem", certificates.ca.cert_pem)
    security = secured(ssl_truststore_location=ca, ssl_enabled_protocols=versions)
    client = connect(broker.address, security=security)
    assert topics_seen(client) == names
    # And a request of many TLS records, which the other side reads in parts.
    found = client.metadata(names, client.deadline("the test"))
    assert [topic.name for topic in found] == names


def test_a_ca_in_the_properties_even_on_one_line(
    start_broker: StartBroker, connect: Connect, certificates: Certificates
) -> None:
    broker = start_broker(context=certificates.server())
    text = certificates.ca.cert_pem.bytes().decode()
    for given in (text, text.strip().replace("\n", " ")):
        security = secured(ssl_truststore_certificates=given)
        assert topics_seen(connect(broker.address, security=security)) == []


@pytest.mark.parametrize("inline", [True, False])
def test_a_client_certificate(
    start_broker: StartBroker, connect: Connect, certificates: Certificates, inline: bool
) -> None:
    context = certificates.server()
    context.verify_mode = ssl.CERT_REQUIRED
    certificates.ca.configure_trust(context)
    broker = start_broker(context=context)
    mine = certificates.ca.issue_cert("client@example.org")
    chain, key = mine.cert_chain_pems[0], mine.private_key_pem
    shown = (
        {
            "ssl.keystore.certificate.chain": chain.bytes().decode(),
            "ssl.keystore.key": key.bytes().decode().replace("\n", " ").strip(),
        }
        if inline
        else {"ssl.keystore.location": certificates.file("client.pem", key, chain)}
    )
    ca = certificates.file("ca.pem", certificates.ca.cert_pem)
    security = secured(**{"ssl.ca.location": ca, **shown})
    assert topics_seen(connect(broker.address, security=security)) == []
    with pytest.raises(ClientError, match="client certificate"):
        topics_seen(connect(broker.address, security=secured(ssl_ca_location=ca)))


def test_a_ca_that_did_not_sign(
    start_broker: StartBroker, connect: Connect, certificates: Certificates
) -> None:
    broker = start_broker(context=certificates.server())
    path = certificates.file("other.pem", certificates.other_ca.cert_pem)
    client = connect(broker.address, security=secured(ssl_ca_location=path))
    with pytest.raises(
        AuthenticationFailed, match=r"not signed by a CA in .*other.pem: set ssl.truststore"
    ):
        topics_seen(client)
    with pytest.raises(AuthenticationFailed, match="not signed by a CA in the system's CAs"):
        topics_seen(connect(broker.address, security=secured()))
    unchecked = secured(enable_ssl_certificate_verification="false")
    assert topics_seen(connect(broker.address, security=unchecked)) == []


def test_a_certificate_for_another_host(
    start_broker: StartBroker, connect: Connect, certificates: Certificates
) -> None:
    broker = start_broker(context=certificates.server("kafka.example.org"))
    ca = certificates.file("ca.pem", certificates.ca.cert_pem)
    with pytest.raises(AuthenticationFailed, match=r"not for 127\.0\.0\.1.*endpoint"):
        topics_seen(connect(broker.address, security=secured(ssl_ca_location=ca)))
    unnamed = secured(ssl_ca_location=ca, ssl_endpoint_identification_algorithm="")
    assert topics_seen(connect(broker.address, security=unnamed)) == []


def test_tls_to_a_plaintext_listener(
    fake_broker: FakeBroker, connect: Connect, serve_once: Callable[[bytes], object]
) -> None:
    client = connect(serve_once(b"HTTP/1.1 400 Bad Request\r\n\r\n"), security=secured())
    with pytest.raises(Unreachable, match=r"does not use TLS.*security.protocol"):
        topics_seen(client)
    hung_up = connect(serve_once(b""), security=secured())
    with pytest.raises(Unreachable, match="does not use TLS"):
        topics_seen(hung_up)


def test_plaintext_to_a_tls_listener(
    start_broker: StartBroker, connect: Connect, certificates: Certificates
) -> None:
    broker = start_broker(context=certificates.server())
    with pytest.raises(ClientError, match=r"set security\.protocol"):
        topics_seen(connect(broker.address))


def test_a_broker_that_stops_answering(
    start_broker: StartBroker, connect: Connect, certificates: Certificates
) -> None:
    broker = start_broker(context=certificates.server())
    released = threading.Event()

    def silent(request: object) -> None:
        released.wait(10)

    broker.handlers[ApiKey.METADATA] = silent
    ca = certificates.file("ca.pem", certificates.ca.cert_pem)
    client = connect(broker.address, timeout_ms=200, security=secured(ssl_ca_location=ca))
    try:
        deadline = client.deadline("the test")
        with pytest.raises(TimedOut, match=r"did not answer: the test took longer than 0.2 s"):
            client.call(client.any(deadline), MetadataRequest(), MetadataResponse, deadline)
    finally:
        released.set()


def test_a_listener_that_never_starts_tls(connect: Connect, silent_address: Address) -> None:
    client = connect(silent_address, timeout_ms=100, security=secured())
    with pytest.raises(Unreachable, match="plaintext listener"):
        topics_seen(client)


def test_a_key_with_a_password(certificates: Certificates) -> None:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    mine = certificates.ca.issue_cert("me@example.org")
    plain = load_pem_private_key(mine.private_key_pem.bytes(), None)
    locked = plain.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"sesame")
    ).decode()
    chain = Pem("ssl.keystore.certificate.chain", text=mine.cert_chain_pems[0].bytes().decode())
    key = Pem("ssl.keystore.key", text=locked)
    tls_context(Tls(certificate=chain, key=key, key_password="sesame"))
    with pytest.raises(SettingError, match=r"ssl\.key\.password: .*encrypted"):
        tls_context(Tls(certificate=chain, key=key))
    with pytest.raises(SettingError, match=r"ssl\.keystore\.key: .*ssl\.key\.password is wrong"):
        tls_context(Tls(certificate=chain, key=key, key_password="guess"))


def test_pem_without_what_it_should_hold(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing here\n")
    with pytest.raises(SettingError, match=r"ssl\.ca\.location: no certificate in"):
        tls_context(Tls(trusted=Pem("ssl.ca.location", path=str(empty))))
    broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    with pytest.raises(SettingError, match="no certificate"):
        tls_context(Tls(trusted=Pem("ssl.ca.pem", text=broken)))
