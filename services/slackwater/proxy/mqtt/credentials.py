"""Passwords, certificates and keys for an MQTT broker; errors name files, never their content.

They are read for each connection, so that they can be changed while the stream runs. A password or
key file that users other than its owner can read or change is refused, as for Kafka.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from slackwater.model.errors import SlackwaterError
from slackwater.model.mqtt import MqttSpec, MqttTlsSpec
from slackwater.runtime.security.private import open_to_others

SECRET_BYTES_MAX: Final = 65_535
"""MQTT's limit for a password."""


class BrokerError(SlackwaterError):
    """Raised if a connection fails, with the reason."""


def password_of(spec: MqttSpec) -> str | None:
    """Return the password without the final line end; None if none is declared."""
    if spec.password_file is None:
        return None
    path = Path(spec.password_file)
    _require_private("password_file", path)
    try:
        with path.open("rb") as file:
            secret = file.read(SECRET_BYTES_MAX + 2)
        return secret.rstrip(b"\r\n").decode()
    except OSError as error:
        raise BrokerError(f"password_file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BrokerError(f"password_file {path} is not UTF-8") from None


def tls_context_of(tls: MqttTlsSpec) -> ssl.SSLContext:
    """Return a context that verifies the broker and its name."""
    if tls.key_file is not None:
        _require_private("key_file", Path(tls.key_file))
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
        if tls.cert_file is not None:
            # With an empty password an encrypted key is an error; without one OpenSSL would prompt.
            context.load_cert_chain(tls.cert_file, tls.key_file, password="")
    except OSError as error:  # an SSLError is one
        files = ", ".join(f for f in (tls.ca_file, tls.cert_file, tls.key_file) if f)
        raise BrokerError(f"TLS files {files} cannot be used: {error}") from None
    return context


def _require_private(what: str, path: Path) -> None:
    try:
        why = open_to_others(path)
    except OSError as error:
        raise BrokerError(f"{what} {path}: {error.strerror}") from None
    if why is not None:
        raise BrokerError(f"{what} {path} {why}")
