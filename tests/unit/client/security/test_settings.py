"""TLS and SASL properties: both sets of names, and the messages for wrong values."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from ottla.client.security.sasl_settings import Sasl
from ottla.client.security.settings import security_settings
from ottla.client.security.tls_settings import Pem, Tls
from ottla.client.setting_error import SettingError

PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
KEY = PEM.replace("CERTIFICATE", "PRIVATE KEY")


def tls(**properties: str) -> Tls:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    found = security_settings({"security.protocol": "SSL", **named}).tls
    assert found is not None
    return found


def sasl(properties: dict[str, str]) -> Sasl:
    found = security_settings({"security.protocol": "SASL_PLAINTEXT", **properties}).sasl
    assert found is not None
    return found


def test_the_four_protocols() -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
    for protocol, has_tls, has_sasl in [
        ("PLAINTEXT", False, False),
        ("SSL", True, False),
        ("SASL_PLAINTEXT", False, True),
        ("sasl_ssl", True, True),
    ]:
        found = security_settings({"security.protocol": protocol, **login})
        assert (found.tls is not None, found.sasl is not None) == (has_tls, has_sasl)


def test_the_defaults_of_tls_check_everything() -> None:
    assert tls() == Tls(None, None, None, None, True, True, ("TLSv1.2", "TLSv1.3"))


@pytest.mark.parametrize("name", ["ssl.truststore.location", "ssl.ca.location"])
def test_a_file_of_cas_by_either_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(PEM)
    assert tls(**{name: str(path)}).trusted == Pem(name, path=str(path))


def test_a_directory_of_cas(tmp_path: Path) -> None:
    trusted = tls(ssl_ca_location=str(tmp_path)).trusted
    assert trusted == Pem("ssl.ca.location", path=str(tmp_path))


@pytest.mark.parametrize(
    ("certificate", "key"),
    [
        ("ssl.keystore.certificate.chain", "ssl.keystore.key"),
        ("ssl.certificate.pem", "ssl.key.pem"),
    ],
)
def test_a_certificate_in_the_properties(certificate: str, key: str) -> None:
    found = tls(**{certificate: PEM, key: KEY, "ssl.key.password": "open sesame"})
    assert found.certificate == Pem(certificate, text=PEM)
    assert found.key == Pem(key, text=KEY)
    assert found.key_password == "open sesame"


def test_checks_can_be_switched_off() -> None:
    assert not tls(ssl_endpoint_identification_algorithm="").checks_host
    assert not tls(ssl_endpoint_identification_algorithm="none").checks_host
    off = tls(enable_ssl_certificate_verification="false")
    assert (off.checks_certificate, off.checks_host) == (False, False)


def test_versions_of_tls() -> None:
    assert tls(ssl_enabled_protocols="TLSv1.3, TLSv1.1").versions == ("TLSv1.3",)


@pytest.mark.parametrize(
    ("properties", "name", "words"),
    [
        ({"ssl.truststore.type": "JKS"}, "ssl.truststore.type", "keytool -list -rfc"),
        ({"ssl.keystore.type": "pkcs12"}, "ssl.keystore.type", "openssl pkcs12"),
        ({"ssl.truststore.location": "/no/such"}, "ssl.truststore.location", "No such file"),
        ({"ssl.truststore.certificates": "AAAA"}, "ssl.truststore.certificates", "not PEM text"),
        ({"ssl.keystore.key": KEY}, "ssl.keystore.key", "no certificate"),
        ({"ssl.certificate.pem": PEM}, "ssl.certificate.pem", "but no key"),
        ({"ssl.enabled.protocols": "SSLv3"}, "ssl.enabled.protocols", "TLSv1.2"),
        (
            {"ssl.endpoint.identification.algorithm": "ldap"},
            "ssl.endpoint.identification.algorithm",
            "should be https or empty",
        ),
        (
            {"enable.ssl.certificate.verification": "off"},
            "enable.ssl.certificate.verification",
            "should be true or false",
        ),
    ],
)
def test_tls_properties_that_are_wrong(properties: dict[str, str], name: str, words: str) -> None:
    with pytest.raises(SettingError, match=words) as caught:
        tls(**properties)
    assert caught.value.name == name


@pytest.mark.parametrize(
    ("name", "start", "command"),
    [
        ("ssl.truststore.location", b"\xfe\xed\xfe\xed\0\0", "keytool -list"),
        ("ssl.ca.location", b"\x30\x82\x01", "keytool -list"),
        ("ssl.keystore.location", b"\xce\xce\xce\xce", "keytool -importkeystore"),
        ("ssl.certificate.location", b"\x30\x80", "openssl pkcs12"),
    ],
)
def test_a_java_store_is_recognised(name: str, start: bytes, command: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.write_bytes(start)
    with pytest.raises(SettingError, match=f"{store} is not PEM.*{command}"):
        tls(**{name: str(store)})


@pytest.mark.parametrize(
    "properties",
    [
        {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": "p"},
        {"sasl.mechanisms": "scram-sha-512", "sasl.username": "u", "sasl.password": "p"},
        {
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": 'M required username=u password="p";',
        },
    ],
)
def test_a_login_by_either_name(properties: dict[str, str]) -> None:
    assert sasl(properties) == Sasl("SCRAM-SHA-512", "u", "p")


def test_tokens() -> None:
    bearer = {"sasl.mechanism": "OAUTHBEARER"}
    assert sasl(bearer | {"sasl.oauthbearer.token": " t\n"}).token == "t"
    in_file = {"sasl.oauthbearer.token.endpoint.url": "file:///a%20b/token"}
    assert sasl(bearer | in_file).token_file == "/a b/token"
    extended = {"sasl.oauthbearer.token": "t", "sasl.jaas.config": "M required extension_a=b x=y;"}
    assert sasl(bearer | extended).extensions == (("a", "b"),)


@pytest.mark.parametrize(
    ("properties", "name", "words"),
    [
        ({}, "sasl.mechanism", "missing: set it to one of PLAIN"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism", "GSSAPI is not supported"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.jaas.config", "needs a user"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "x"}, "sasl.jaas.config", "flag"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "sasl.oauthbearer.token", "needs a token"),
        (
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": "https://example.org/token",
            },
            "sasl.oauthbearer.token.endpoint.url",
            "fetching tokens from a server is not supported",
        ),
    ],
)
def test_sasl_properties_that_are_wrong(properties: dict[str, str], name: str, words: str) -> None:
    with pytest.raises(SettingError, match=words) as caught:
        sasl(properties)
    assert caught.value.name == name


def test_secrets_are_not_shown_and_survive_pickling() -> None:
    settings = security_settings(
        {
            "security.protocol": "SASL_SSL",
            "ssl.keystore.certificate.chain": PEM,
            "ssl.keystore.key": KEY,
            "ssl.key.password": "secret-1",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "u",
            "sasl.password": "secret-2",
        }
    )
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert "secret" not in repr(settings)
    assert "AAAA" not in repr(settings)
