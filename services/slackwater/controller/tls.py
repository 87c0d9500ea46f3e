"""TLS of controllers' connections: both ends present a certificate of one authority.

Controllers, nodes and commands each have a directory with ``ca.pem``, ``cert.pem`` and ``key.pem``.
An end that connects checks the name in the other's certificate. An end that accepts only checks
that the authority has signed the certificate, which takes the place of a shared secret. The
authority must therefore sign for controllers, nodes and operators only. Certificates are read at
the start of a process.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from slackwater.model.errors import UsageError
from slackwater.runtime.security.private import open_to_others

CA_FILE, CERT_FILE, KEY_FILE = "ca.pem", "cert.pem", "key.pem"
OPTION: Final = "--tls-dir"


@dataclass(frozen=True)
class LinkTls:
    """The TLS contexts of the end that accepts a connection, and of the end that connects."""

    accepting: ssl.SSLContext = field(repr=False)
    connecting: ssl.SSLContext = field(repr=False)


def read_tls(directory: Path) -> LinkTls:
    """Read the three files.

    Raises:
        UsageError: one is missing or unusable, or the key is open to other users.
    """
    ca, cert, key = (directory / name for name in (CA_FILE, CERT_FILE, KEY_FILE))
    for file in (ca, cert, key):
        try:
            file.read_bytes()
        except OSError as error:
            raise UsageError(f"{OPTION}: {file}: {error.strerror}") from None
    if refusal := open_to_others(key):
        raise UsageError(f"{OPTION}: {key}: it {refusal}")
    try:
        contexts = [
            ssl.create_default_context(purpose, cafile=ca)
            for purpose in (ssl.Purpose.CLIENT_AUTH, ssl.Purpose.SERVER_AUTH)
        ]
    except ssl.SSLError as error:
        raise UsageError(f"{OPTION}: {ca}: no certificate in PEM ({error.reason})") from None
    for context in contexts:
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            # An empty password in place of none: with none OpenSSL prompts on the terminal.
            context.load_cert_chain(cert, key, password="")
        except (ssl.SSLError, ValueError):
            raise UsageError(
                f"{OPTION}: {cert} and {key}: not a certificate and its key in PEM, or the key is"
                " encrypted"
            ) from None
    return LinkTls(*contexts)


def why_failed(error: OSError) -> str:
    """Why a connection failed, as a phrase; errors of TLS are explained."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        if reason == "WRONG_VERSION_NUMBER":
            return f"it does not use TLS, and {OPTION} is given"
        return f"TLS: {reason.lower().replace('_', ' ')}"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"  # asyncio's text repeats the address
    return error.strerror or str(error) or "no answer"
