"""Mutual authentication of clients and Kafka, defined once for all client libraries.

``Security`` has the content of a security file (``security_file.py``) and converts it to the
options of librdkafka, aiokafka and Spark. Its secrets appear in no ``repr``. Spark writes the
options of its Kafka source and sink into plans, logs and checkpoints, so these options only refer
to the file. Kafka's own client reads the values from it, in the JVM that connects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from slackwater.runtime.security.certificates import Identity, tls_context
from slackwater.runtime.security.oauth_client import OAuthClient

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]


class Role(StrEnum):
    """The role of a client; each may have a principal of its own (``docs/security.md``)."""

    PROXY = "proxy"
    HOST = "host"
    """Orderers and roots."""
    AGGREGATOR = "aggregator"
    CLIENT = "client"
    """Readers of results."""
    EXPORTER = "exporter"
    GATEWAY = "gateway"
    """The live page and its API: reads what a client reads, under a name of its own."""
    NOTIFIER = "notifier"
    """What sends alerts to receivers."""
    UPLINK = "uplink"
    """What a site writes to the Kafka of the centre, and reads there."""
    ADMIN = "admin"
    """Creates topics, registers queries, truncates logs: ``up``, ``topics``, nodes."""


@dataclass(frozen=True, slots=True)
class Login:
    """User name and password, for PLAIN and SCRAM."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Security:
    """One principal's credentials for one cluster; by default plaintext and anonymous."""

    protocol: Protocol = "PLAINTEXT"
    mechanism: str = ""
    login: Login | None = None
    oauth: OAuthClient | None = None
    authorities_pem: str | None = field(default=None, repr=False)
    identity: Identity | None = None
    check_names: bool = True
    spark_options: Mapping[str, str] = field(default_factory=dict)
    given: Path | None = None
    """The security file, or the folder with the files of all roles."""

    def confluent(self) -> dict[str, Any]:
        """Return the options of librdkafka: producers, consumers and admin clients."""
        if self.protocol == "PLAINTEXT":
            return {}
        config: dict[str, Any] = {"security.protocol": self.protocol}
        if self.mechanism:
            config["sasl.mechanisms"] = self.mechanism
        if self.login is not None:
            config["sasl.username"] = self.login.username
            config["sasl.password"] = self.login.password
        if self.oauth is not None:
            config |= _oidc(self.oauth)
        if self.protocol in ("SSL", "SASL_SSL"):
            config |= self._confluent_tls()
        return config

    def aiokafka(self) -> dict[str, Any]:
        """Return the options of aiokafka's clients, which Faust's consumer also uses."""
        if self.protocol == "PLAINTEXT":
            return {}
        config: dict[str, Any] = {"security_protocol": self.protocol}
        if self.protocol in ("SSL", "SASL_SSL"):
            config["ssl_context"] = tls_context(
                self.authorities_pem, self.identity, check_names=self.check_names
            )
        if self.mechanism:
            config["sasl_mechanism"] = self.mechanism
        if self.login is not None:
            config["sasl_plain_username"] = self.login.username
            config["sasl_plain_password"] = self.login.password
        if self.oauth is not None:
            from slackwater.runtime.security.oauth import TokenProvider

            config["sasl_oauth_token_provider"] = TokenProvider(self.oauth)
        return config

    def spark(self) -> dict[str, str]:
        """Return the options of Spark's Kafka source and sink; references replace secrets."""
        return {f"kafka.{name}": value for name, value in self.spark_options.items()}

    def _confluent_tls(self) -> dict[str, Any]:
        config: dict[str, Any] = {
            "ssl.endpoint.identification.algorithm": "https" if self.check_names else "none"
        }
        if self.authorities_pem is not None:
            config["ssl.ca.pem"] = self.authorities_pem
        if self.identity is not None:
            config["ssl.certificate.pem"] = self.identity.chain_pem
            config["ssl.key.pem"] = self.identity.key_pem
            if self.identity.password is not None:
                config["ssl.key.password"] = self.identity.password
        return config


def _oidc(client: OAuthClient) -> dict[str, str]:
    config = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": client.token_url,
        "sasl.oauthbearer.client.id": client.client_id,
        "sasl.oauthbearer.client.secret": client.client_secret,
    }
    if client.scope:
        config["sasl.oauthbearer.scope"] = client.scope
    if client.extensions:
        pairs = [f"{name}={value}" for name, value in client.extensions.items()]
        config["sasl.oauthbearer.extensions"] = ",".join(pairs)
    return config


PLAINTEXT = Security()
