"""Each authentication mechanism of Kafka on a real connection, with the mapping of its properties.

PLAIN, OAUTHBEARER and a client's certificate, each with confluent-kafka and with aiokafka: records
written by one are read by the other. SCRAM and Spark have the full test (``test_secured.py``). The
tokens are unsigned, which Kafka's own validator accepts for tests; they are given for a client's
secret.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Partition
from tests.support.certificates import private
from tests.support.waiting import WAIT_S_MAX

from slackwater.machine.broker import EmbeddedBroker, why_no_answer
from slackwater.machine.broker_security import BROKER, BrokerSecurity
from slackwater.runtime.logs.cluster import Cluster, find_cluster
from slackwater.runtime.logs.topics import (
    TopicLayout,
    aiokafka_consumer,
    aiokafka_producer,
    confluent_consumer,
    confluent_producer,
    ensure_topics,
)
from slackwater.runtime.security.authority import Authority
from slackwater.runtime.security.credentials import Role
from slackwater.runtime.security.private import make_private, write_atomically

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
OWNER, PLANT = "owner", "plant-7"
SENT = [b"by confluent-kafka", b"by aiokafka"]
WAYS = ("PLAIN", "OAUTHBEARER", "certificate")


@dataclass(frozen=True)
class AllWays(BrokerSecurity):
    """The embedded broker's security, with more mechanisms and a client's certificate."""

    password: str = field(default_factory=secrets.token_urlsafe, repr=False)

    def prepare(self) -> None:
        make_private(self.folder)
        authority = Authority("test authority")
        for name, file in ((BROKER, self._identity), (PLANT, self.plant)):
            own = authority.issue(name)
            write_atomically(file, own.chain_pem + own.key_pem)
        write_atomically(self.authorities, authority.pem)

    @property
    def plant(self) -> Path:
        return self.folder / "plant.pem"

    @property
    def trusted(self) -> Path:
        return self.authorities

    def properties(self) -> list[tuple[str, object]]:
        users = f'user_{PLANT}="{self.password}"'
        changed = {
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN,OAUTHBEARER",
            "listener.name.clients.plain.sasl.jaas.config": f"{PLAIN} required {users};",
            "listener.name.clients.oauthbearer.sasl.jaas.config": f"{BEARER} required;",
            "super.users": f"User:CN={BROKER};User:{self.owner};User:{PLANT};User:CN={PLANT}",
        }
        return list((dict(super().properties()) | changed).items())


class Tokens:
    """An endpoint that gives a token to the one client with the right secret."""

    def __init__(self, client_id: str) -> None:
        self.client_id, self.secret = client_id, secrets.token_urlsafe()
        self.given = 0
        shown = base64.b64encode(f"{client_id}:{self.secret}".encode()).decode()
        tokens = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
                known = self.headers["Authorization"] == f"Basic {shown}"
                known &= "grant_type=client_credentials" in asked
                tokens.given += known
                answer = {"access_token": tokens.token(), "expires_in": 300} if known else {}
                body = json.dumps(answer | {"token_type": "bearer"}).encode()
                self.send_response(200 if known else 401)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
                """Log nothing."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def token(self) -> str:
        now = int(time.time())
        claims = {"sub": self.client_id, "iat": now - 5, "exp": now + 300}
        parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
        return ".".join([*(base64.urlsafe_b64encode(p).decode().rstrip("=") for p in parts), ""])

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@dataclass
class Secured:
    """The broker, and the users' files of properties."""

    broker: EmbeddedBroker
    security: AllWays
    tokens: Tokens
    folder: Path

    @property
    def inside(self) -> str:
        """The listener that requires certificates."""
        ports = json.loads((self.broker.data_dir / "ports.json").read_text())
        return f"127.0.0.1:{ports['inside']}"

    def cluster(self, way: str, secret: str | None = None) -> Cluster:
        """Return the clients' settings for a user's file; ``secret`` replaces the right one."""
        lines = {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.security.trusted}
        if way == "certificate":
            lines |= {"bootstrap.servers": self.inside, "security.protocol": "SSL"}
            lines |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.security.plant}
        else:
            lines |= {"bootstrap.servers": self.broker.bootstrap, "security.protocol": "SASL_SSL"}
            lines |= {"sasl.mechanism": way, "sasl.jaas.config": self._jaas(way, secret)}
        if way == "OAUTHBEARER":
            lines["sasl.oauthbearer.token.endpoint.url"] = self.tokens.url
        text = "".join(f"{name}={value}\n" for name, value in lines.items())
        file = private(self.folder / f"{way}.properties", text.encode())
        return find_cluster(None, file, Role.CLIENT)

    def _jaas(self, way: str, secret: str | None) -> str:
        if way == "PLAIN":
            password = secret or self.security.password
            return f'{PLAIN} required username="{PLANT}" password="{password}";'
        given = secret or self.tokens.secret
        return f'{BEARER} required clientId="{PLANT}" clientSecret="{given}";'


@pytest.fixture(name="secured", scope="module")
def _secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("ways")
    users = {OWNER: secrets.token_urlsafe()}
    security, tokens = AllWays(folder / "tls", OWNER, users), Tokens(PLANT)
    with EmbeddedBroker(folder / "broker", security=security) as broker:
        yield Secured(broker, security, tokens, folder)
    tokens.close()


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoint for tokens is on this machine."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def confluent_writes(cluster: Cluster, topic: str) -> None:
    producer = Producer(
        confluent_producer(cluster) | {"message.timeout.ms": int(WAIT_S_MAX * 1000)}
    )
    failed: list[object] = []
    producer.produce(topic, SENT[0], on_delivery=lambda error, _: failed.append(error))
    producer.flush(WAIT_S_MAX)
    assert failed == [None]


def confluent_reads(cluster: Cluster, topic: str) -> list[bytes | None]:
    consumer = Consumer(confluent_consumer(cluster))
    consumer.assign([Partition(topic, 0, 0)])
    found = [message.value() for message in consumer.consume(len(SENT), WAIT_S_MAX)]
    consumer.close()
    return found


async def aiokafka_does_both(cluster: Cluster, topic: str) -> list[bytes | None]:
    async with AIOKafkaProducer(**aiokafka_producer(cluster)) as producer:
        await producer.send_and_wait(topic, SENT[1])
    consumer = AIOKafkaConsumer(**aiokafka_consumer(cluster))
    async with consumer:
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        return [(await asyncio.wait_for(consumer.getone(), WAIT_S_MAX)).value for _ in SENT]


@pytest.mark.parametrize("way", WAYS)
def test_both_clients_come_in_and_read_each_other(secured: Secured, way: str) -> None:
    topic = f"by-{way.lower()}"
    ensure_topics(secured.broker.cluster, [TopicLayout(topic, 1, {})], WAIT_S_MAX)
    cluster = secured.cluster(way)
    confluent_writes(cluster, topic)
    assert asyncio.run(aiokafka_does_both(cluster, topic)) == SENT
    assert confluent_reads(cluster, topic) == SENT
    if way == "OAUTHBEARER":
        assert secured.tokens.given >= 2, "librdkafka and aiokafka each requested one"


@pytest.mark.parametrize("way", ["PLAIN", "OAUTHBEARER"])
def test_another_secret_is_refused(secured: Secured, way: str) -> None:
    assert why_no_answer(secured.cluster(way, "another"), 5) is not None
    assert why_no_answer(secured.cluster(way), WAIT_S_MAX) is None


def test_without_a_certificate_nobody_comes_in_where_one_is_asked_for(secured: Secured) -> None:
    text = f"bootstrap.servers={secured.inside}\nsecurity.protocol=SSL\n"
    text += f"ssl.truststore.type=PEM\nssl.truststore.location={secured.security.trusted}\n"
    file = private(secured.folder / "nobody.properties", text.encode())
    assert why_no_answer(find_cluster(None, file, Role.CLIENT), 5) is not None
    assert why_no_answer(secured.cluster("certificate"), WAIT_S_MAX) is None
