"""Certificate files in the forms of users: PEM, and PKCS12 stores made by Java's tools."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)

from slackwater.runtime.security import authority


@dataclass(frozen=True)
class Issued:
    """A certificate and its key, in two files."""

    chain: Path
    key: Path

    def keystore(self, password: str) -> Path:
        """Write both to a PKCS12 store."""
        path = private(self.chain.with_suffix(".p12"), b"")
        key = load_pem_private_key(self.key.read_bytes(), None)
        chain = x509.load_pem_x509_certificates(self.chain.read_bytes())
        assert isinstance(key, EllipticCurvePrivateKey)
        encryption = BestAvailableEncryption(password.encode())
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(b"own", key, chain[0], None, encryption)
        )
        return path


class Authority:
    """A certificate authority with its files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = authority.Authority("test authority")
        self.pem = folder / "ca.pem"
        self.pem.write_text(self._authority.pem)

    def issue(self, name: str) -> Issued:
        """Issue a certificate for a broker or client of this name."""
        issued = self._authority.issue(name)
        chain = self._folder / f"{name}.pem"
        chain.write_text(issued.chain_pem)
        return Issued(chain, private(self._folder / f"{name}.key", issued.key_pem.encode()))

    def truststore(self, password: str) -> Path:
        """Write the authority's certificate to a PKCS12 store, with Java's own tool."""
        path = self._folder / "truststore.p12"
        path.unlink(missing_ok=True)
        subprocess.run(
            [
                *("keytool", "-importcert", "-noprompt", "-alias", "ca", "-storetype", "PKCS12"),
                *("-storepass", password, "-keystore", str(path), "-file", str(self.pem)),
            ],
            check=True,
            capture_output=True,
        )
        return path


def private(path: Path, content: bytes) -> Path:
    """Write a file that only its owner can read."""
    path.touch(0o600)
    path.chmod(0o600)
    path.write_bytes(content)
    return path
