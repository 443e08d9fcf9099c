"""TLS for client connections: the SSL context, and error messages for failed handshakes.

The usual reasons for a failure are: the listener does not use TLS, the CA of its certificate
is not trusted, the certificate is for another host name, or the listener needs a client
certificate. Each has a message that names the property to check.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import tempfile
from contextlib import ExitStack

from ottla.client.address import Address
from ottla.client.deadline import Deadline
from ottla.client.errors import AuthenticationFailed, TimedOut, Unreachable
from ottla.client.security.tls_settings import Pem, Tls
from ottla.client.setting_error import SettingError

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_ONE_LINE_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([^-\n]+)-----END \1-----")
_LINE = 64
_HOST_MISMATCHES = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_UNKNOWN_ISSUER = (2, 18, 19, 20, 21)
_OUT_OF_DATE = (9, 10)


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Return an SSL context with these settings. Raise SettingError for an invalid property."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = _VERSIONS[tls.versions[0]]
    context.maximum_version = _VERSIONS[tls.versions[-1]]
    context.check_hostname = tls.checks_host
    context.verify_mode = ssl.CERT_REQUIRED if tls.checks_certificate else ssl.CERT_NONE
    if tls.trusted is not None:
        _trust(context, tls.trusted)
    elif tls.checks_certificate:
        context.load_default_certs()
    if tls.certificate is not None:
        _show(context, tls.certificate, tls.key, tls.key_password)
    return context


class TlsClient:
    """Starts TLS on connected sockets, with one context for all of them."""

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._context = tls_context(tls)

    def secure(
        self, connected: socket.socket, address: Address, deadline: Deadline
    ) -> ssl.SSLSocket:
        """Do the TLS handshake and return the TLS socket. Errors say what is wrong."""
        connected.settimeout(deadline.remaining_s())
        try:
            return self._context.wrap_socket(connected, server_hostname=address.host)
        except TimeoutError:
            raise TimedOut(
                f"{address} did not answer the TLS handshake within"
                f" {deadline.timeout_ms / 1000:g} s (is it a plaintext listener?)"
            ) from None
        except ssl.SSLCertVerificationError as error:
            raise AuthenticationFailed(_why_not_trusted(error, address, self._tls)) from None
        except OSError as error:
            raise Unreachable(_why_failed(error, address)) from None
        except (ValueError, UnicodeError):  # an invalid host name
            raise Unreachable(f"{address} is not a valid address") from None


def write_all(secured: ssl.SSLSocket, data: bytes, deadline: Deadline) -> None:
    """Send all bytes within the deadline. `sendall` would restart its timeout for each part."""
    with memoryview(data) as view:
        position = 0
        while position < len(view):
            secured.settimeout(deadline.remaining_s())
            position += secured.send(view[position:])


def alert_words(error: OSError, address: Address) -> str | None:
    """Return the meaning of a TLS alert, or None if the error is not one.

    With TLS 1.3 the broker checks the client certificate after the handshake.
    """
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    if not reason or "ALERT" not in reason:
        return None
    if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason or "HANDSHAKE_FAILURE" in reason:
        return (
            f"{address} refused the client certificate, or needs one ({reason}): set"
            " ssl.keystore.certificate.chain and ssl.keystore.key, or ssl.keystore.location,"
            " to a certificate that it trusts"
        )
    return f"{address} ended TLS with {reason}"


def _why_failed(error: OSError, address: Address) -> str:
    if alert := alert_words(error, address):
        return alert
    if isinstance(error, ssl.SSLError) and error.reason not in _NOT_TLS:
        return f"{address}: TLS failed: {error.reason or error}"
    return (
        f"{address} does not use TLS: use the port of a TLS listener, or set"
        " security.protocol to PLAINTEXT or SASL_PLAINTEXT"
    )


_NOT_TLS = {
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "UNEXPECTED_EOF_WHILE_READING",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
    None,
}


def _why_not_trusted(error: ssl.SSLCertVerificationError, address: Address, tls: Tls) -> str:
    if error.verify_code in _HOST_MISMATCHES:
        return (
            f"the certificate of {address} is not for {address.host}: connect to a name in the"
            " certificate, or disable this check with an empty"
            " ssl.endpoint.identification.algorithm"
        )
    trusted = "the system's CAs" if tls.trusted is None else str(tls.trusted)
    if error.verify_code in _UNKNOWN_ISSUER:
        return (
            f"the certificate of {address} was not signed by a CA in {trusted}: set"
            " ssl.truststore.location (or ssl.ca.location) to a PEM file with the CA that signed it"
        )
    if error.verify_code in _OUT_OF_DATE:
        return f"the certificate of {address} is out of date: {error.verify_message}"
    return f"the certificate of {address} is not valid: {error.verify_message}"


def _trust(context: ssl.SSLContext, trusted: Pem) -> None:
    try:
        if trusted.text is not None:
            context.load_verify_locations(cadata=_with_lines(trusted.text))
        elif os.path.isdir(str(trusted.path)):
            context.load_verify_locations(capath=trusted.path)
        else:
            context.load_verify_locations(cafile=trusted.path)
    except (OSError, ValueError) as error:
        raise SettingError(trusted.name, f"no certificate in {trusted}: {_text(error)}") from None


def _show(context: ssl.SSLContext, certificate: Pem, key: Pem | None, password: str | None) -> None:
    with ExitStack() as files:
        chain_path = _on_disk(certificate, files)
        key_path = _on_disk(key, files) if key is not None else None
        try:
            # Without a password, OpenSSL would prompt for one on the terminal.
            context.load_cert_chain(chain_path, key_path, password=password or _no_password)
        except _PasswordNeeded:
            raise SettingError(
                "ssl.key.password",
                f"the key in {key or certificate} is encrypted: set its password",
            ) from None
        except (OSError, ValueError) as error:
            raise SettingError(
                (key or certificate).name,
                f"{certificate} and {key or certificate} are not a certificate and its key,"
                f" or ssl.key.password is wrong: {_text(error)}",
            ) from None


class _PasswordNeeded(Exception):
    pass


def _no_password() -> str:
    raise _PasswordNeeded


def _on_disk(pem: Pem, files: ExitStack) -> str:
    """Return a path to the PEM. OpenSSL reads keys only from files, so text gets a private file."""
    if pem.path is not None:
        return pem.path
    directory = files.enter_context(tempfile.TemporaryDirectory())  # readable only by this user
    path = os.path.join(directory, "pem")
    with open(path, "w") as file:
        file.write(_with_lines(pem.text or ""))
    return path


def _with_lines(text: str) -> str:
    """Split PEM text that is on one line, as in many property files, into lines."""

    def lines(block: re.Match[str]) -> str:
        body = "".join(block[2].split())
        wrapped = "\n".join(body[start : start + _LINE] for start in range(0, len(body), _LINE))
        return f"-----BEGIN {block[1]}-----\n{wrapped}\n-----END {block[1]}-----\n"

    return _ONE_LINE_PEM.sub(lines, text)


def _text(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
