"""The security file: address and credentials of a Kafka cluster, as Kafka client properties.

Property names are those of Java's clients. Those of librdkafka are accepted, too, so that a file
for the tools of either library can be used. Unknown properties are errors, since an ignored
property might be the one that secures the connection. Instead of the file a folder may be given:
each process then reads the file of its role, ``proxy.properties`` and so on.

Errors contain no values, which may be secrets.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn, TypeVar
from urllib.parse import urlsplit

from slackwater.model.errors import UsageError
from slackwater.runtime.security.certificates import (
    CertificateError,
    Identity,
    authorities_of_pem,
    authorities_of_pkcs12,
    how_to_convert,
    identity_of_pem,
    identity_of_pkcs12,
    kind_of,
    tls_context,
)
from slackwater.runtime.security.credentials import Login, Protocol, Role, Security
from slackwater.runtime.security.jaas import parse_jaas
from slackwater.runtime.security.oauth_client import OAuthClient
from slackwater.runtime.security.properties import PropertiesError, Property, parse_properties

_T = TypeVar("_T")

FILE_BYTES_MAX: Final = 1024 * 1024
PROTOCOLS: Final[tuple[Protocol, ...]] = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MODULE: Final = "org.apache.kafka.common.security."
_MODULES: Final = {
    "PLAIN": f"{_MODULE}plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_MODULE}scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_MODULE}scram.ScramLoginModule",
    "OAUTHBEARER": f"{_MODULE}oauthbearer.OAuthBearerLoginModule",
}
_OAUTH_HANDLER: Final = f"{_MODULE}oauthbearer.OAuthBearerLoginCallbackHandler"
_OAUTH_HANDLERS: Final = (
    _OAUTH_HANDLER,
    f"{_MODULE}oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)
_KERBEROS: Final = (
    "Kerberos is not supported: librdkafka's wheels are built without it. Use mTLS, SCRAM or"
    " OAUTHBEARER"
)
_PROVIDERS: Final = {
    "config.providers": "file,directory",
    "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    "config.providers.directory.class": (
        "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
    ),
}

# Synonyms, Java's name first.
_MECHANISM: Final = ("sasl.mechanism", "sasl.mechanisms")
_CLIENT_ID: Final = ("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id")
_CLIENT_SECRET: Final = (
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.client.secret",
)
_KNOWN: Final = {
    "bootstrap.servers",
    "security.protocol",
    *_MECHANISM,
    "sasl.jaas.config",
    "sasl.username",
    "sasl.password",
    "sasl.login.callback.handler.class",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.token.endpoint.url",
    *_CLIENT_ID,
    *_CLIENT_SECRET,
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions",
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.keystore.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.key.password",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.endpoint.identification.algorithm",
}


@dataclass(frozen=True, slots=True)
class KafkaFile:
    """The content of a security file: the cluster's address, if given, and the credentials."""

    bootstrap: str | None
    security: Security


def read_kafka_file(given: Path, role: Role) -> KafkaFile:
    """Read a file, or the role's file in a folder; ``UsageError`` names file, line and key."""
    given = given.absolute()
    path = given / f"{role}.properties" if given.is_dir() else given
    return _Reader(given, path, parse_file(path)).read()


def parse_file(path: Path) -> dict[str, Property]:
    """Read the properties of a file that only its owner can read."""
    content = _private(path, "it contains Kafka credentials")
    if len(content) > FILE_BYTES_MAX:
        raise UsageError(f"{path} is larger than {FILE_BYTES_MAX} bytes: not a properties file")
    try:
        return parse_properties(content.decode())
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8") from None
    except PropertiesError as error:
        raise UsageError(f"{path}, {error}") from None


def _private(path: Path, why: str) -> bytes:
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & 0o077:
                raise UsageError(
                    f"{path} can be read or changed by others (mode {mode:04o}), and {why}:"
                    f" run chmod 600 {path}"
                )
            return file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


@dataclass
class _Reader:
    """Reads one file, and collects Spark's options."""

    given: Path
    path: Path
    found: Mapping[str, Property]
    spark: dict[str, str] = field(default_factory=dict)

    def read(self) -> KafkaFile:
        self._check_names()
        protocol = self._protocol()
        mechanism = self._mechanism(protocol)
        login = self._login(mechanism) if mechanism not in ("", "OAUTHBEARER") else None
        oauth = self._oauth() if mechanism == "OAUTHBEARER" else None
        authorities, identity = self._authorities(), self._identity()
        check_names = self._check_host_names()
        if protocol in ("SSL", "SASL_SSL"):
            self._try(self._any_of("ssl."), lambda: tls_context(authorities, identity))
        if any("${" in value for value in self.spark.values()):
            if ":" in str(self.path) or "}" in str(self.path):
                self._refuse(None, "Spark accepts no path that contains : or }")
            self.spark |= _PROVIDERS
        security = Security(
            protocol,
            mechanism,
            login,
            oauth,
            authorities,
            identity,
            check_names,
            {} if protocol == "PLAINTEXT" else self.spark,
            self.given,
        )
        return KafkaFile(self._value("bootstrap.servers") or None, security)

    def _check_names(self) -> None:
        for key in self.found:
            if key.startswith("sasl.kerberos."):
                self._refuse(key, _KERBEROS)
            if key not in _KNOWN:
                self._refuse(
                    key, "is unknown: this file contains only Kafka's address and credentials"
                )

    def _protocol(self) -> Protocol:
        wanted = self._value("security.protocol").upper() or "PLAINTEXT"
        self.spark["security.protocol"] = wanted
        for protocol in PROTOCOLS:
            if protocol == wanted:
                break
        else:
            self._refuse("security.protocol", f"must be one of {', '.join(PROTOCOLS)}")
        for prefix, used in (("sasl.", "SASL" in protocol), ("ssl.", "SSL" in protocol)):
            key = self._any_of(prefix)
            if key is not None and not used:
                self._refuse(key, f"has no effect with security.protocol={protocol}")
        return protocol

    def _mechanism(self, protocol: Protocol) -> str:
        if not protocol.startswith("SASL"):
            return ""
        key = self._one_of(_MECHANISM)
        if key is None:
            self._refuse("security.protocol", f"{protocol} needs sasl.mechanism")
        mechanism = self._value(key).upper()
        if mechanism == "GSSAPI":
            self._refuse(key, _KERBEROS)
        if mechanism not in _MODULES:
            self._refuse(key, f"must be one of {', '.join(_MODULES)}")
        self.spark["sasl.mechanism"] = mechanism
        return mechanism

    def _login(self, mechanism: str) -> Login:
        if "sasl.jaas.config" in self.found:
            options = self._jaas(mechanism, ("username", "password"))
            return Login(options["username"], options["password"])
        for key in ("sasl.username", "sasl.password"):
            if key not in self.found:
                self._refuse(None, f"{mechanism} needs sasl.jaas.config, or {key}")
        self._spark_jaas(mechanism, {"username": "sasl.username", "password": "sasl.password"})
        return Login(self.found["sasl.username"].value, self.found["sasl.password"].value)

    def _oauth(self) -> OAuthClient:
        handler = self._value("sasl.login.callback.handler.class")
        if handler and handler not in _OAUTH_HANDLERS:
            self._refuse("sasl.login.callback.handler.class", f"only {_OAUTH_HANDLER}")
        if self._value("sasl.oauthbearer.method").lower() not in ("", "oidc"):
            self._refuse("sasl.oauthbearer.method", "only oidc, with client credentials")
        url = self._value("sasl.oauthbearer.token.endpoint.url")
        if urlsplit(url).scheme not in ("http", "https"):
            self._refuse("sasl.oauthbearer.token.endpoint.url", "must be an http or https address")
        self.spark["sasl.oauthbearer.token.endpoint.url"] = url
        self.spark["sasl.login.callback.handler.class"] = _OAUTH_HANDLER
        if "sasl.jaas.config" in self.found:
            return self._oauth_of_jaas(url)
        client_id, secret = self._one_of(_CLIENT_ID), self._one_of(_CLIENT_SECRET)
        if client_id is None or secret is None:
            self._refuse(None, f"OAUTHBEARER needs {_CLIENT_ID[0]} and {_CLIENT_SECRET[0]}")
        extensions = self._extensions()
        named = {"clientId": client_id, "clientSecret": secret}
        if "sasl.oauthbearer.scope" in self.found:
            named["scope"] = "sasl.oauthbearer.scope"
        self._spark_jaas("OAUTHBEARER", named, extensions)
        return OAuthClient(
            url,
            self.found[client_id].value,
            self.found[secret].value,
            self._value("sasl.oauthbearer.scope"),
            extensions,
        )

    def _oauth_of_jaas(self, url: str) -> OAuthClient:
        options = self._jaas("OAUTHBEARER", ("clientId", "clientSecret"), ("scope", "extension_"))
        return OAuthClient(
            url,
            options["clientId"],
            options["clientSecret"],
            options.get("scope", ""),
            {
                name.removeprefix("extension_"): value
                for name, value in options.items()
                if name.startswith("extension_")
            },
        )

    def _extensions(self) -> dict[str, str]:
        key = "sasl.oauthbearer.extensions"
        pairs = [pair.partition("=") for pair in self._value(key).split(",") if pair]
        if not all(name and equals for name, equals, _ in pairs):
            self._refuse(key, "write name=value,name=value")
        return {name: value for name, _, value in pairs}

    def _jaas(
        self, mechanism: str, needed: tuple[str, ...], more: tuple[str, ...] = ()
    ) -> dict[str, str]:
        """Parse the options of this mechanism's login module."""
        key = "sasl.jaas.config"
        for other in ("sasl.username", "sasl.password", *_CLIENT_ID, *_CLIENT_SECRET):
            if other in self.found:
                self._refuse(other, f"is already given in {key}")
        try:
            module, options = parse_jaas(self.found[key].value)
        except ValueError as error:
            self._refuse(key, str(error))
        if module.endswith("Krb5LoginModule"):
            self._refuse(key, _KERBEROS)
        if module != _MODULES[mechanism]:
            self._refuse(key, f"{mechanism} needs {_MODULES[mechanism]}")
        for name in needed:
            if name not in options:
                self._refuse(key, f"{name} is missing")
        for name in options.keys() - set(needed):
            if not name.startswith(more or ("?",)):
                self._refuse(key, f"option {name} is unknown")
        self.spark[key] = self._reference(key)
        return options

    def _spark_jaas(
        self, mechanism: str, named: Mapping[str, str], extensions: Mapping[str, str] | None = None
    ) -> None:
        """Set Java's JAAS option, its only form of credentials; the values stay in the file."""
        for key in named.values():
            if any(letter in self.found[key].value for letter in '"\\\n\r'):
                self._refuse(
                    key, "a quote, backslash or line end is only possible in sasl.jaas.config"
                )
        options = [f'{name}="{self._reference(key)}"' for name, key in named.items()]
        options += [f'extension_{name}="{value}"' for name, value in (extensions or {}).items()]
        self.spark["sasl.jaas.config"] = f"{_MODULES[mechanism]} required {' '.join(options)};"

    def _authorities(self) -> str | None:
        """The authorities of the brokers' certificates; None for those of this machine."""
        key = self._one_of(
            (
                "ssl.truststore.location",
                "ssl.truststore.certificates",
                "ssl.ca.location",
                "ssl.ca.pem",
            )
        )
        if key is None:
            return None
        if not key.endswith(".location"):
            self.spark["ssl.truststore.type"] = "PEM"
            self.spark["ssl.truststore.certificates"] = self._reference(key)
            return self._try(key, lambda: authorities_of_pem(self.found[key].value))
        path, content = self._file(key)
        password = self._password("ssl.truststore.password")
        kind = self._try(key, lambda: kind_of(content))
        self.spark["ssl.truststore.type"] = kind
        self.spark["ssl.truststore.location"] = str(path)
        if kind == "PKCS12":
            if password is not None:
                self.spark["ssl.truststore.password"] = self._reference("ssl.truststore.password")
            return self._try(key, lambda: authorities_of_pkcs12(content, password))
        if kind == "JKS":
            self._refuse(key, how_to_convert(path))
        return self._try(key, lambda: authorities_of_pem(content.decode(errors="replace")))

    def _identity(self) -> Identity | None:
        """The client certificate and its key; None without one."""
        chain = self._one_of(
            (
                "ssl.keystore.location",
                "ssl.keystore.certificate.chain",
                "ssl.certificate.location",
                "ssl.certificate.pem",
            )
        )
        key = self._one_of(("ssl.keystore.key", "ssl.key.location", "ssl.key.pem"))
        password = self._password("ssl.key.password")
        if password is not None:
            self.spark["ssl.key.password"] = self._reference("ssl.key.password")
        if chain == "ssl.keystore.location":
            if key is not None:
                self._refuse(key, f"is already given in {chain}")
            return self._keystore(chain, password)
        if chain is None or key is None:
            if (one := chain or key) is not None:
                self._refuse(one, "certificate and key must be given together")
            return None
        self.spark["ssl.keystore.type"] = "PEM"
        texts = (
            self._text(chain, "ssl.keystore.certificate.chain"),
            self._text(key, "ssl.keystore.key", private=True),
        )
        text = "\n".join(dict.fromkeys(texts))  # both may be in one file
        return self._try(key, lambda: identity_of_pem(text, password))

    def _keystore(self, key: str, key_password: str | None) -> Identity:
        path, content = self._file(key, private=True)
        password = self._password("ssl.keystore.password")
        kind = self._try(key, lambda: kind_of(content))
        self.spark["ssl.keystore.type"] = kind
        self.spark["ssl.keystore.location"] = str(path)
        if password is not None:
            self.spark["ssl.keystore.password"] = self._reference("ssl.keystore.password")
        if kind == "PKCS12":
            return self._try(key, lambda: identity_of_pkcs12(content, password))
        if kind == "JKS":
            self._refuse(key, how_to_convert(path))
        text = content.decode(errors="replace")
        return self._try(key, lambda: identity_of_pem(text, key_password))

    def _check_host_names(self) -> bool:
        key = "ssl.endpoint.identification.algorithm"
        if key not in self.found:
            return True
        wanted = self._value(key).lower()
        if wanted not in ("", "https", "none"):
            self._refuse(key, "must be https, or empty to accept any broker name")
        self.spark[key] = "https" if wanted == "https" else ""
        return wanted == "https"

    # Values of the file.

    def _value(self, key: str) -> str:
        """Return the value without surrounding blanks, as Java does except for secrets."""
        return self.found[key].value.strip() if key in self.found else ""

    def _password(self, key: str) -> str | None:
        return self.found[key].value if key in self.found else None

    def _one_of(self, keys: tuple[str, ...]) -> str | None:
        given = [key for key in keys if key in self.found]
        if len(given) > 1:
            self._refuse(given[1], f"has the same meaning as {given[0]}: remove one of them")
        return given[0] if given else None

    def _any_of(self, prefix: str) -> str | None:
        return next((key for key in self.found if key.startswith(prefix)), None)

    def _file(self, key: str, *, private: bool = False) -> tuple[Path, bytes]:
        """Return path and content of a file; relative paths start at this file's folder."""
        path = self.path.parent / self._value(key)
        if private:
            return path, _private(path, "it contains a private key")
        try:
            return path, path.read_bytes()
        except OSError as error:
            self._refuse(key, f"{path} cannot be read: {error.strerror}")

    def _text(self, key: str, for_spark: str, *, private: bool = False) -> str:
        """Return PEM from the property or from the file that it names."""
        if not key.endswith(".location"):
            self.spark[for_spark] = self._reference(key)
            return self.found[key].value
        path, content = self._file(key, private=private)
        self.spark[for_spark] = f"${{directory:{path.parent}:{path.name}}}"
        return content.decode(errors="replace")

    def _reference(self, key: str) -> str:
        """Return a reference to a value for Kafka's own client (its ``FileConfigProvider``)."""
        return f"${{file:{self.path}:{key}}}"

    def _try(self, key: str | None, work: Callable[[], _T]) -> _T:
        try:
            return work()
        except (CertificateError, ValueError, OSError) as error:
            reason = str(error) if isinstance(error, CertificateError) else "is not valid PEM"
            self._refuse(key, reason)

    def _refuse(self, key: str | None, reason: str) -> NoReturn:
        if key is None or key not in self.found:
            raise UsageError(f"{self.path}: {reason if key is None else f'{key}: {reason}'}")
        raise UsageError(f"{self.path}, line {self.found[key].line}: {key}: {reason}")
