"""A certificate authority for one machine: signs certificates of its brokers and their clients.

The authority's key exists only in memory. All certificates are issued in one run of the program;
afterwards no more can be issued, even with access to the disk.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from slackwater.runtime.security.certificates import Identity

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

LIFE: Final = dt.timedelta(days=3650)
CLOCK_SKEW_MAX: Final = dt.timedelta(days=1)
"""How far a certificate's validity is backdated, for peers whose clocks are behind."""


class Authority:
    """An authority whose key is discarded with the object; clients trust ``pem``."""

    def __init__(self, name: str) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec

        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        self._certificate = self._signed(self._name, self._key.public_key(), None)
        self.pem = _pem(self._certificate)

    def issue(self, name: str, hosts: Sequence[str] = ()) -> Identity:
        """Issue a certificate, for a broker or a client, with its key.

        It is valid for this machine and for ``hosts``.
        """
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
        )

        key = ec.generate_private_key(ec.SECP256R1())
        private: str = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return Identity(
            _pem(self._signed(_named(name), key.public_key(), self._name, hosts)), private
        )

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        issuer: x509.Name | None,
        hosts: Sequence[str] = (),
    ) -> x509.Certificate:
        """Sign a certificate; ``issuer`` is None for the authority's own."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        now = dt.datetime.now(dt.UTC)
        own = self._key.public_key()
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer or subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCK_SKEW_MAX)
            .not_valid_after(now + LIFE)
            .add_extension(x509.BasicConstraints(issuer is None, None), critical=True)
            .add_extension(_usage(signs=issuer is None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(own), critical=False)
        )
        if issuer is not None:
            builder = builder.add_extension(_names(hosts), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _named(name: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _names(hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    from cryptography import x509

    addresses = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    names = [x509.DNSName(host) for host in ("localhost", *hosts)]
    return x509.SubjectAlternativeName([*names, *addresses])


def _usage(*, signs: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    pem: str = certificate.public_bytes(Encoding.PEM).decode()
    return pem
