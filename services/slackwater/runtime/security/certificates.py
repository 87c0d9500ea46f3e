"""Certificates and keys, from PEM or PKCS12 into PEM in memory.

Three client libraries need three forms: librdkafka takes PEM as text, Python's TLS takes text for
authorities and only files for a chain with its key, Java takes either kind of file. All input is
therefore read once into PEM and passed on from there. Nothing is written to disk, except for
temporary files on kernels without files in memory.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeVar

_Store = TypeVar("_Store")
Kind = Literal["PEM", "PKCS12", "JKS"]

_JKS_MAGICS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER_SEQUENCE: Final = b"\x30"
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
_PKCS8: Final = ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY")


class CertificateError(ValueError):
    """A certificate or key cannot be used; the message contains nothing of its content."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate chain, and the key that belongs to it."""

    chain_pem: str
    key_pem: str = field(repr=False)
    password: str | None = field(default=None, repr=False)


def kind_of(content: bytes) -> Kind:
    """Return the format of a certificate file, from its content."""
    if content.startswith(_JKS_MAGICS):
        return "JKS"
    if b"-----BEGIN " in content:
        return "PEM"
    if content.startswith(_DER_SEQUENCE):
        return "PKCS12"
    raise CertificateError("the file is neither PEM nor PKCS12")


def how_to_convert(path: Path) -> str:
    """Return the error text for a JKS keystore, with the command that converts it."""
    return (
        f"{path} is a JKS keystore, which only Java reads; convert it: keytool -importkeystore"
        f" -srckeystore {path} -destkeystore {path.with_suffix('.p12')} -deststoretype PKCS12"
    )


def authorities_of_pem(text: str) -> str:
    """Return all certificates in a text, as PEM."""
    found = [block[0] for block in _BLOCK.finditer(text) if block[1] == "CERTIFICATE"]
    if not found:
        raise CertificateError("there is no certificate in it")
    return "\n".join(found) + "\n"


def identity_of_pem(text: str, password: str | None) -> Identity:
    """Return the certificates and the one key in a text."""
    keys = [block for block in _BLOCK.finditer(text) if block[1].endswith("PRIVATE KEY")]
    if len(keys) != 1:
        raise CertificateError(f"one private key is expected in it, there are {len(keys)}")
    if keys[0][1] not in _PKCS8:
        raise CertificateError(
            f"its key is of the old kind {keys[0][1]}, which Java does not read; convert it:"
            " openssl pkcs8 -topk8 -nodes -in KEY -out NEW-KEY"
        )
    return Identity(authorities_of_pem(text), keys[0][0] + "\n", password)


def authorities_of_pkcs12(content: bytes, password: str | None) -> str:
    """Return all certificates of a truststore, as PEM."""
    from cryptography.hazmat.primitives.serialization import Encoding, pkcs12

    store = _opened(pkcs12.load_pkcs12, content, password)
    found = [*store.additional_certs, *([store.cert] if store.cert is not None else [])]
    if not found:
        raise CertificateError("there is no certificate in it")
    pem: str = "".join(each.certificate.public_bytes(Encoding.PEM).decode() for each in found)
    return pem


def identity_of_pkcs12(content: bytes, password: str | None) -> Identity:
    """Return chain and key of a keystore, as PEM."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        pkcs12,
    )

    store = _opened(pkcs12.load_pkcs12, content, password)
    if store.key is None or store.cert is None:
        raise CertificateError("there is no key with its certificate in it")
    chain: str = "".join(
        each.certificate.public_bytes(Encoding.PEM).decode()
        for each in (store.cert, *store.additional_certs)
    )
    key: str = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return Identity(chain, key)


def tls_context(
    authorities_pem: str | None, identity: Identity | None, *, check_names: bool = True
) -> ssl.SSLContext:
    """Return the TLS context of Python's clients; ``CertificateError`` if OpenSSL refuses it."""
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cadata=authorities_pem)
    context.check_hostname = check_names
    if identity is not None:
        with _as_file(identity.chain_pem + identity.key_pem) as path:
            try:
                # An empty password instead of none: with none OpenSSL prompts on the terminal.
                context.load_cert_chain(path, password=identity.password or "")
            except (ssl.SSLError, OSError, ValueError) as error:
                raise CertificateError(
                    "certificate and key do not belong together, or the key needs another password"
                ) from error
    return context


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """Provide a temporary path to the text: a file in memory if the kernel has such files."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("slackwater")
        try:
            os.write(descriptor, text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            yield file.name


def _opened(
    load: Callable[[bytes, bytes | None], _Store], content: bytes, password: str | None
) -> _Store:
    try:
        return load(content, None if password is None else password.encode())
    except ValueError as error:
        raise CertificateError("the file is not PKCS12, or the password is wrong") from error
