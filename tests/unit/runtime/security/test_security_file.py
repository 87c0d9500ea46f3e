"""The file of Kafka credentials: accepted and refused content, and the errors."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.support.certificates import Authority

from slackwater.model.errors import UsageError
from slackwater.runtime.logs.cluster import find_cluster
from slackwater.runtime.security.credentials import Role, Security
from slackwater.runtime.security.security_file import read_kafka_file

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def write(folder: Path, text: str, name: str = "k.properties") -> Path:
    path = folder / name
    path.write_text(text)
    path.chmod(0o600)
    return path


def read(folder: Path, *lines: str) -> Security:
    return read_kafka_file(write(folder, "\n".join(lines)), Role.CLIENT).security


def refused(folder: Path, *lines: str) -> str:
    with pytest.raises(UsageError) as caught:
        read(folder, *lines)
    assert caught.value.exit_code == 2
    return caught.value.message.replace(str(folder), "F")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def test_scram_in_javas_words_and_in_librdkafkas_is_the_same(tmp_path: Path) -> None:
    java = read(
        tmp_path,
        "security.protocol=SASL_SSL",
        "sasl.mechanism=SCRAM-SHA-512",
        f"sasl.jaas.config={SCRAM} required \\",
        r'  username="u" password="p\\"\\\\q";',
    )
    librdkafka = read(
        tmp_path,
        "security.protocol=sasl_ssl",
        "sasl.mechanisms=SCRAM-SHA-512",
        "sasl.username=u",
        r"sasl.password=pq",
    )
    assert java.login is not None
    assert (java.login.username, java.login.password) == ("u", 'p"\\q')
    assert librdkafka.confluent() == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "u",
        "sasl.password": "pq",
        "ssl.endpoint.identification.algorithm": "https",
    }
    assert java.confluent().keys() == librdkafka.confluent().keys()
    assert {"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "u"}.items() <= (
        librdkafka.aiokafka().items()
    )


def test_spark_receives_references_to_secrets_not_their_values(tmp_path: Path) -> None:
    path = tmp_path / "k.properties"
    java = read(
        tmp_path,
        "security.protocol=SASL_PLAINTEXT",
        "sasl.mechanism=PLAIN",
        f'sasl.jaas.config={PLAIN} required username="u" password="hidden";',
    ).spark()
    assert java["kafka.sasl.jaas.config"] == f"${{file:{path}:sasl.jaas.config}}"
    assert java["kafka.config.providers"] == "file,directory"
    librdkafka = read(
        tmp_path,
        "security.protocol=SASL_PLAINTEXT",
        "sasl.mechanism=PLAIN",
        "sasl.username=u",
        "sasl.password=hidden",
    ).spark()
    assert librdkafka["kafka.sasl.jaas.config"] == (
        f'{PLAIN} required username="${{file:{path}:sasl.username}}"'
        f' password="${{file:{path}:sasl.password}}";'
    )
    assert "hidden" not in repr((java, librdkafka))


def test_oauth_client_credentials(tmp_path: Path) -> None:
    common = (
        "security.protocol=SASL_SSL",
        "sasl.mechanism=OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url=https://id.example/token",
    )
    jaas = read(
        tmp_path,
        *common,
        f'sasl.jaas.config={OAUTH} required clientId="c" clientSecret="s" scope="kafka"'
        ' extension_tenant="t";',
    )
    keys = read(
        tmp_path,
        *common,
        "sasl.oauthbearer.method=oidc",
        "sasl.oauthbearer.client.id=c",
        "sasl.oauthbearer.client.secret=s",
        "sasl.oauthbearer.scope=kafka",
        "sasl.oauthbearer.extensions=tenant=t",
    )
    assert jaas.oauth == keys.oauth
    assert jaas.confluent() == keys.confluent()
    assert keys.confluent()["sasl.oauthbearer.extensions"] == "tenant=t"
    assert "sasl_oauth_token_provider" in keys.aiokafka()


@pytest.mark.parametrize("inline", [False, True])
def test_mtls_from_pem(tmp_path: Path, authority: Authority, inline: bool) -> None:
    client = authority.issue("client")
    if inline:
        lines = [
            f"ssl.truststore.certificates={_one_line(authority.pem)}",
            f"ssl.keystore.certificate.chain={_one_line(client.chain)}",
            f"ssl.keystore.key={_one_line(client.key)}",
        ]
    else:
        write(tmp_path, client.chain.read_text() + client.key.read_text(), "both.pem")
        lines = [f"ssl.truststore.location={authority.pem}", "ssl.keystore.location=both.pem"]
    _connects_with(read(tmp_path, "security.protocol=SSL", *lines))


def test_mtls_from_pkcs12_and_from_librdkafkas_files(tmp_path: Path, authority: Authority) -> None:
    client = authority.issue("client")
    _connects_with(
        read(
            tmp_path,
            "security.protocol=SSL",
            f"ssl.truststore.location={authority.truststore('secret-t')}",
            "ssl.truststore.password=secret-t",
            f"ssl.keystore.location={client.keystore('secret-k')}",
            "ssl.keystore.password=secret-k",
        )
    )
    _connects_with(
        read(
            tmp_path,
            "security.protocol=ssl",
            f"ssl.ca.location={authority.pem}",
            f"ssl.certificate.location={client.chain}",
            f"ssl.key.location={client.key}",
        )
    )
    both = write(tmp_path, client.chain.read_text() + client.key.read_text(), "both.pem")
    _connects_with(
        read(
            tmp_path,
            "security.protocol=ssl",
            f"ssl.ca.location={authority.pem}",
            f"ssl.certificate.location={both}",
            f"ssl.key.location={both}",
        )
    )


def _one_line(path: Path) -> str:
    return path.read_text().replace("\n", "\\n")


def _connects_with(security: Security) -> None:
    """The libraries accept it: certificate and key match, the authority is readable."""
    assert security.identity is not None
    context = security.aiokafka()["ssl_context"]
    assert [dict(x[0] for x in cert["subject"]) for cert in context.get_ca_certs()]
    AdminClient(security.confluent() | {"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    text = repr(security) + repr(security.spark())
    assert "PRIVATE KEY" not in text
    assert "secret-" not in text


def test_a_jks_keystore_is_refused_with_the_command_that_converts(
    tmp_path: Path, authority: Authority
) -> None:
    path = tmp_path / "old.jks"
    subprocess.run(
        [
            *("keytool", "-importcert", "-noprompt", "-alias", "ca", "-storetype", "JKS"),
            *("-storepass", "changeit", "-keystore", str(path), "-file", str(authority.pem)),
        ],
        check=True,
        capture_output=True,
    )
    reported = refused(tmp_path, "security.protocol=SSL", "ssl.truststore.location=old.jks")
    assert (
        "F/k.properties, line 2: ssl.truststore.location: F/old.jks is a JKS keystore" in reported
    )
    command = reported.partition("convert it: ")[2].replace("F/", f"{tmp_path}/").split()
    assert command[0] == "keytool"
    passwords = ["-srcstorepass", "changeit", "-deststorepass", "changeit"]
    subprocess.run([*command, *passwords], check=True, capture_output=True)
    converted = read(
        tmp_path,
        "security.protocol=SSL",
        "ssl.truststore.location=old.p12",
        "ssl.truststore.password=changeit",
    )
    assert converted.authorities_pem is not None


_SASL, _JAAS = "security.protocol=SASL_SSL", "sasl.jaas.config="


@pytest.mark.parametrize(
    ("lines", "reported"),
    [
        (["a.b=1"], "line 1: a.b: is unknown"),
        (["", "security.protocl=SSL"], "line 2: security.protocl: is unknown"),
        (["security.protocol=TLS"], "line 1: security.protocol: must be one of PLAINTEXT, SSL"),
        ([_SASL], "line 1: security.protocol: SASL_SSL needs sasl.mechanism"),
        ([_SASL, "sasl.mechanism=GSSAPI"], "line 2: sasl.mechanism: Kerberos is not supported"),
        (["sasl.kerberos.service.name=kafka"], "line 1: sasl.kerberos.service.name: Kerberos"),
        (
            [_SASL, "sasl.mechanism=PLAIN", "sasl.mechanisms=PLAIN"],
            "has the same meaning as sasl.mechanism: remove one of them",
        ),
        ([_SASL, "sasl.mechanism=PLAIN"], "PLAIN needs sasl.jaas.config, or sasl.username"),
        (["sasl.username=u"], "line 1: sasl.username: has no effect with security.protocol=PLAIN"),
        (["security.protocol=SSL", "sasl.username=u"], "has no effect with security.protocol=SSL"),
        (
            [
                _SASL,
                "sasl.mechanism=PLAIN",
                f'sasl.jaas.config={SCRAM} required password="hidden";',
            ],
            f"line 3: sasl.jaas.config: PLAIN needs {PLAIN}",
        ),
        (
            [_SASL, "sasl.mechanism=PLAIN", f"sasl.jaas.config={PLAIN} required password=hidden"],
            "line 3: sasl.jaas.config: character",
        ),
        (
            [
                _SASL,
                "sasl.mechanism=PLAIN",
                f'sasl.jaas.config={PLAIN} required password="hidden";',
            ],
            "line 3: sasl.jaas.config: username is missing",
        ),
        (
            [_SASL, "sasl.mechanism=PLAIN", "sasl.username=u", 'sasl.password=hid"den'],
            "line 4: sasl.password: a quote, backslash or line end is only possible in",
        ),
        (
            [_SASL, "sasl.mechanism=OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url=file:///x"],
            "line 3: sasl.oauthbearer.token.endpoint.url: must be an http or https address",
        ),
        (["security.protocol=SSL", "ssl.ca.location=none.pem"], "F/none.pem cannot be read"),
        (["security.protocol=SSL", "ssl.ca.pem=hidden"], "line 2: ssl.ca.pem: there is no cert"),
        (
            ["security.protocol=SSL", "ssl.keystore.key=hidden"],
            "line 2: ssl.keystore.key: certificate and key must be given together",
        ),
        (["ssl.key.password=hidden", "ssl.key.password=hidden"], "line 2: ssl.key.password is giv"),
    ],
)
def test_what_is_refused_is_named_with_its_line(
    tmp_path: Path, lines: list[str], reported: str
) -> None:
    message = refused(tmp_path, *lines)
    assert reported in message
    assert message.startswith("F/k.properties")
    assert "hidden" not in message
    assert 'hid"den' not in message


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_file_that_others_can_read_is_refused_with_the_command(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path, "bootstrap.servers=h:1")
    path.chmod(mode)
    with pytest.raises(UsageError, match=rf"mode {mode:04o}.*run chmod 600 {path}"):
        read_kafka_file(path, Role.PROXY)


def test_so_is_a_private_key(tmp_path: Path, authority: Authority) -> None:
    client = authority.issue("client")
    client.key.chmod(0o644)
    reported = refused(
        tmp_path,
        "security.protocol=SSL",
        f"ssl.certificate.location={client.chain}",
        f"ssl.key.location={client.key}",
    )
    assert f"run chmod 600 {client.key}" in reported


def test_a_folder_has_a_file_for_each_role(tmp_path: Path) -> None:
    write(tmp_path, "bootstrap.servers=h:1", "proxy.properties")
    assert find_cluster(None, tmp_path, Role.PROXY).bootstrap == "h:1"
    assert find_cluster("o:2", tmp_path, Role.PROXY).bootstrap == "o:2"
    with pytest.raises(UsageError, match=r"host\.properties cannot be read"):
        find_cluster("o:2", tmp_path, Role.HOST)


def test_a_file_without_an_address_needs_one(tmp_path: Path) -> None:
    path = write(tmp_path, "security.protocol=PLAINTEXT")
    assert find_cluster("o:2", path, Role.PROXY).bootstrap == "o:2"
    with pytest.raises(UsageError, match=r"add bootstrap\.servers"):
        find_cluster(None, path, Role.PROXY)
