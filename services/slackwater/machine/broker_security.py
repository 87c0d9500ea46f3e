"""TLS and SCRAM for the embedded broker: authentication of clients and of the broker itself.

The broker has three listeners: for clients, for the broker itself, and for its controller. Clients
authenticate with a password (SCRAM) inside TLS. The broker and its controller authenticate with the
broker's certificate. It is the only one that its authority has signed, and the authority's key is
not kept, so clients need a password. No password is in a command line or in the broker's settings:
after each start the users are written through the second listener, with the broker's certificate.

kcat uses that listener and certificate as well, which the owner of the data directory can read: in
SCRAM, librdkafka before 2.6.1 appends its nonce twice, and Kafka 4 refuses it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from slackwater.model.errors import EnvironmentProblem
from slackwater.runtime.logs.admin import Admin
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.security.authority import Authority
from slackwater.runtime.security.certificates import identity_of_pem
from slackwater.runtime.security.credentials import Login, Role, Security
from slackwater.runtime.security.private import make_private, write_atomically
from slackwater.runtime.security.security_file import read_kafka_file

BROKER: Final = "slackwater-broker"
"""The name in the broker's certificate."""
MECHANISM: Final = "SCRAM-SHA-512"
ITERATIONS: Final = 4096
USERS_S_MAX: Final = 30.0
PASSWORD_BYTES: Final = 24
CLIENT_FILE: Final = "client.properties"
KCAT_FILE: Final = "kcat.conf"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def security_of(data_dir: Path) -> BrokerSecurity:
    """Return the security settings of a data directory's broker.

    The administrator has a random name and password, which are kept once they are stored.
    """
    file = data_dir / CLIENT_FILE
    login = read_kafka_file(file, Role.ADMIN).security.login if file.exists() else None
    if login is None:
        name = f"slackwater-{secrets.token_hex(4)}"
        login = Login(name, secrets.token_urlsafe(PASSWORD_BYTES))
    return BrokerSecurity(
        data_dir / "broker" / "tls", login.username, {login.username: login.password}
    )


@dataclass(frozen=True, slots=True)
class BrokerSecurity:
    """Security settings of a broker with its certificates in ``folder``.

    ``users`` maps names to passwords. ``owner`` is the administrator; the other users have only the
    rights of the access control lists.
    """

    folder: Path
    owner: str
    users: Mapping[str, str] = field(repr=False)
    hosts: tuple[str, ...] = ()
    """Host names of the certificate, in addition to those of this machine."""

    def prepare(self) -> None:
        """Create the authority and the certificate, unless the folder has them."""
        make_private(self.folder)
        if self.authorities.exists():
            return
        authority = Authority("slackwater embedded broker")
        own = authority.issue(BROKER, self.hosts)
        write_atomically(self._identity, own.chain_pem + own.key_pem)
        write_atomically(self.authorities, authority.pem)  # last: it marks the folder as complete

    def properties(self) -> list[tuple[str, object]]:
        """Return the broker's settings, except the addresses of its listeners."""
        return [
            ("listener.security.protocol.map", "CLIENTS:SASL_SSL,INSIDE:SSL,CONTROLLER:SSL"),
            ("sasl.enabled.mechanisms", MECHANISM),
            ("listener.name.clients.scram-sha-512.sasl.jaas.config", f"{_SCRAM} required;"),
            ("ssl.keystore.type", "PEM"),
            ("ssl.keystore.location", self._identity),
            ("ssl.truststore.type", "PEM"),
            ("ssl.truststore.location", self.authorities),
            ("listener.name.inside.ssl.client.auth", "required"),
            ("listener.name.controller.ssl.client.auth", "required"),
            ("authorizer.class.name", _AUTHORIZER),
            ("allow.everyone.if.no.acl.found", "false"),
            ("super.users", f"User:CN={BROKER};User:{self.owner}"),
        ]

    def cluster(self, bootstrap: str, given: Path | None = None) -> Cluster:
        """Return the cluster for the owner; ``given`` is a file with the same credentials."""
        return self.cluster_for(self.owner, bootstrap, given)

    def cluster_for(self, user: str, bootstrap: str, given: Path | None = None) -> Cluster:
        """Return the cluster for a user; ``given`` is a file with the same credentials."""
        security = Security(
            "SASL_SSL",
            MECHANISM,
            Login(user, self.users[user]),
            authorities_pem=self.authorities.read_text(),
            given=given,
        )
        return Cluster(bootstrap, security)

    def inside(self, bootstrap: str) -> Cluster:
        """Return the cluster for a client with the broker's certificate."""
        identity = identity_of_pem(self._identity.read_text(), None)
        authorities = self.authorities.read_text()
        return Cluster(bootstrap, Security("SSL", authorities_pem=authorities, identity=identity))

    def write_users(self, inside: Cluster) -> None:
        """Create the users with their passwords in the broker."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
        wanted: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(name, info, password.encode(), secrets.token_bytes(32))
            for name, password in self.users.items()
        ]
        answers = Admin(inside).ask(
            lambda admin: admin.alter_user_scram_credentials(wanted), USERS_S_MAX
        )
        for name, why in (*answers.refused.items(), *answers.missing.items()):
            raise EnvironmentProblem(f"cannot create user {name} in the broker: {why}")

    def client_properties(self, bootstrap: str) -> str:
        """Return the owner's client settings in the format of Kafka's Java tools."""
        login = Login(self.owner, self.users[self.owner])
        return client_properties(bootstrap, login, self.authorities)

    def kcat_conf(self, inside: str) -> str:
        """Return settings for ``kcat -F`` at the second listener, with the certificate."""
        return (
            f"bootstrap.servers={inside}\n"
            "security.protocol=ssl\n"
            f"ssl.certificate.location={self._identity}\n"
            f"ssl.key.location={self._identity}\n"
            f"ssl.ca.location={self.authorities}\n"
        )

    def write_client_files(self, bootstrap: str, inside: str, data_dir: Path) -> None:
        """Write the owner's client settings, readable by the owner of the directory only.

        Args:
            bootstrap: address of the listener for clients.
            inside: address of the second listener.
            data_dir: where to write.
        """
        write_atomically(data_dir / KCAT_FILE, self.kcat_conf(inside))
        write_atomically(data_dir / CLIENT_FILE, self.client_properties(bootstrap))

    @property
    def authorities(self) -> Path:
        """File with the certificate authority that clients trust."""
        return self.folder / "ca.pem"

    @property
    def _identity(self) -> Path:
        return self.folder / "broker.pem"


def client_properties(bootstrap: str, login: Login, authorities: Path) -> str:
    """Return client settings in the format of Kafka's Java tools and of slackwater's commands.

    ``authorities`` may be a path relative to the file.
    """
    return (
        f"bootstrap.servers={bootstrap}\n"
        "security.protocol=SASL_SSL\n"
        f"sasl.mechanism={MECHANISM}\n"
        f"sasl.jaas.config={_SCRAM} required"
        f' username="{login.username}" password="{login.password}";\n'
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={authorities}\n"
    )


def kcat_conf(bootstrap: str, login: Login, authorities: Path) -> str:
    """Return client settings in the format of librdkafka, for ``kcat -F``."""
    return (
        f"bootstrap.servers={bootstrap}\n"
        "security.protocol=sasl_ssl\n"
        f"sasl.mechanisms={MECHANISM}\n"
        f"sasl.username={login.username}\n"
        f"sasl.password={login.password}\n"
        f"ssl.ca.location={authorities}\n"
    )
