"""A Kafka with TLS, SCRAM and access control lists, deny by default: each role has a principal.

The deployment's processes run over it, a producer falls silent, an orderer and the root are killed,
and the results are exact; no principal has more rights than its role needs; and no password is in
the files of the run, nor visible in its processes.
"""

from __future__ import annotations

import json
import secrets
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
)
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic
from tests.integration.test_plain_topic import (
    DEPLOYMENT,
    PARTITIONS,
    Results,
    Stranger,
    each_reading_is_counted_once,
    nothing_is_due_before_all_is_ready,
)
from tests.support.certificates import private
from tests.support.files import files
from tests.support.starting import asked, make_topics
from tests.support.waiting import WAIT_S_MAX, eventually
from tests.unit.notifier.test_notifier import Hook

from slackwater.deployment.parse import load_deployment
from slackwater.machine.broker import EmbeddedBroker, why_no_answer
from slackwater.machine.broker_security import BrokerSecurity
from slackwater.model.errors import UsageError
from slackwater.notifier.app import Notifier
from slackwater.registration.topics import topic_specs
from slackwater.runtime.logs.admin import Admin
from slackwater.runtime.logs.cluster import Cluster, confluent_client, find_cluster
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import ensure_topics
from slackwater.runtime.security.acl import Rule, rules
from slackwater.runtime.security.credentials import Role
from slackwater.stack.stack import StackOptions
from slackwater.stack.stack_thread import StackThread

# It starts all processes with TLS, and waits for the corrections of a silence and two kills.
pytestmark = [pytest.mark.slow]

OWNER, STRANGER = "owner", "stranger"
ALERTS = """\
alerts:
  warm: {query: lab-seconds, when: temperature_avg > 20}
  mute: {stream: lab, missing: 2s}
"""
"""Both partitions have readings of 21.5 degrees, until their producer falls silent."""
EXPECTED = [
    ("mute", "", "ended"),
    ("mute", "", "firing"),
    ("warm", "m0", "firing"),
    ("warm", "m1", "firing"),
]
_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}


@dataclass
class Secured:
    """The cluster, its users, and their files."""

    broker: EmbeddedBroker
    security: BrokerSecurity
    files: Path
    deployment: Path

    def as_user(self, name: str) -> Cluster:
        return self.security.cluster_for(name, self.broker.bootstrap)

    def allow(self, user: str, *allowed: Rule) -> None:
        """Add rights as ``kafka-acls.sh --add`` does."""
        bindings = [
            AclBinding(
                _RESOURCES[rule.resource],
                rule.name,
                ResourcePatternType[rule.pattern.upper()],
                f"User:{user}",
                "*",
                AclOperation[operation.upper()],
                AclPermissionType.ALLOW,
            )
            for rule in allowed
            for operation in rule.operations
        ]
        admin = Admin(self.broker.cluster)
        answers = admin.ask(lambda client: client.create_acls(bindings), WAIT_S_MAX)
        assert answers.given.keys() == set(bindings), answers
        # They are stored by the controller; the broker's own authorizer receives them a moment
        # later.
        eventually(lambda: set(bindings) <= set(self._allowed(user)))

    def _allowed(self, user: str) -> list[AclBinding]:
        wanted = AclBindingFilter(
            ResourceType.ANY,
            None,  # type: ignore[arg-type]
            ResourcePatternType.ANY,
            f"User:{user}",
            None,  # type: ignore[arg-type]
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        return list(asked(self.broker.cluster, lambda client: client.describe_acls(wanted)))


@pytest.fixture(name="secured", scope="module")
def _secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    names = [OWNER, STRANGER, *Role]
    users = {str(name): secrets.token_urlsafe(24) for name in names}
    security = BrokerSecurity(folder / "tls", OWNER, users)
    path = folder / "deployment.yaml"
    path.write_text(DEPLOYMENT + ALERTS)
    with EmbeddedBroker(folder / "broker", security=security) as broker:
        secured = Secured(broker, security, folder / "files", path)
        secured.files.mkdir()
        make_topics(broker.cluster, ["lab-readings"], PARTITIONS)
        for role in Role:
            own = BrokerSecurity(security.folder, str(role), users)
            text = own.client_properties(broker.bootstrap)
            private(secured.files / f"{role}.properties", text.encode())
            secured.allow(str(role), *rules(role, load_deployment(path)))
        secured.allow(STRANGER, Rule("topic", "lab-readings", ("Write",)))
        # An external consumer has a group of its own.
        secured.allow(str(Role.CLIENT), Rule("group", "anybody", ("Read",)))
        yield secured


def test_the_drill_passes_and_leaves_no_secret(secured: Secured, tmp_path: Path) -> None:
    data = tmp_path / "data"
    options = StackOptions(
        secured.deployment, load_deployment(secured.deployment), data, kafka_config=secured.files
    )
    stack = StackThread(options)
    stranger = Stranger(secured.as_user(STRANGER))
    try:
        stack.open()
        results = Results(secured.as_user(Role.CLIENT))
        stranger.start()
        stack.start_up()
        results.read_until(lambda: len(results.boundaries("stable")) >= 2, "windows are stable")
        stranger.stop()
        before = len(results.boundaries("tentative"))
        results.read_until(
            lambda: len(results.boundaries("tentative")) > before + 1, "windows turn tentative"
        )
        assert results.boundaries("tentative")[-1]["missing"] == ["lab"]
        stranger.start()
        for target in ("orderer", "root", "proxy/1"):
            assert stack.kill(target)
        secrets_are_private(secured)
        alerts_are_sent_once(secured, tmp_path)
        killed = max(stranger.sent)
        results.read_until(
            lambda: (
                max(results.counts(), default=0) > killed + 2
                and any(line["kind"] == "rec_done" for line in results.lines)
            ),
            "all is corrected, and it goes on",
        )
        stranger.stop()
        secrets_are_private(secured)
    finally:
        stack.stop()
    nothing_is_due_before_all_is_ready(results, secured.broker.cluster)
    each_reading_is_counted_once(stranger, results, secured.broker.cluster, seconds_min=4)
    found = [
        path.relative_to(data)
        for path, content in files(data)
        if any(secret in content for secret in passwords(secured))
    ]
    assert not found
    assert '"kafka_config": "' in (data / "run.json").read_text()
    assert list((data / "aggregator").rglob("checkpoints/*/*")), "Spark's own files were checked"


def alerts_are_sent_once(secured: Secured, folder: Path) -> None:
    """Each alert is there once, and the notifier, with rights of its own, sends it."""
    transport, hook = KafkaTransport(secured.as_user(Role.NOTIFIER)), Hook()
    topic = transport.names.alerts("lab-seconds")
    file = folder / "notifier.json"
    file.write_text(json.dumps({"offsets": {topic: 0}, "receivers": {}}))
    notifier = Notifier(transport, lambda: [topic], file, webhook=hook.receiver)
    notifier.open()
    try:

        def are_sent() -> bool:
            notifier.turn()
            found = sorted((of["alert"], of["key"], of["state"]) for of in hook.bodies)
            return found == EXPECTED

        eventually(are_sent, "the room is warm, and the stream was silent and is back")
    finally:
        notifier.close()
        hook.server.shutdown()
        hook.server.server_close()


def passwords(secured: Secured) -> list[bytes]:
    return [password.encode() for password in secured.security.users.values()]


def secrets_are_private(secured: Secured) -> None:
    """Check the data of a process that every user of this machine can read."""
    for process in psutil.process_iter():
        try:
            seen = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        except OSError:
            continue
        assert not any(secret in seen for secret in passwords(secured)), process.name()


def refusal(secured: Secured, user: str, topic: str) -> KafkaError | None:
    """Return the reason why this user may not write there."""
    reported: list[KafkaError | None] = []
    config = {"message.timeout.ms": int(WAIT_S_MAX * 1000), "log_level": 0}
    producer = Producer(confluent_client(secured.as_user(user)) | config)
    producer.produce(topic, b"forged", on_delivery=lambda error, _: reported.append(error))
    producer.flush(WAIT_S_MAX)
    return reported[0]


def test_each_role_is_denied_what_it_does_not_need(secured: Secured) -> None:
    deployment = load_deployment(secured.deployment)
    names = deployment.names
    (query,) = deployment.queries
    forbidden = {
        Role.CLIENT: names.results(query, "stable"),
        Role.PROXY: names.ordered(query, 0),
        Role.AGGREGATOR: names.results(query, "stable"),
        Role.HOST: names.source("lab.0"),
        Role.EXPORTER: names.state(query),
        Role.ADMIN: names.results(query, "stable"),
    }
    ensure_topics(secured.broker.cluster, topic_specs(deployment, {"lab": PARTITIONS}), WAIT_S_MAX)
    for role, topic in forbidden.items():
        error = refusal(secured, role, topic)
        assert error is not None, (role, topic)
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, (role, topic, error)


def hidden(secured: Secured, user: str, topic: str) -> bool:
    """Return whether even the topic's description is refused to this user: reading needs more."""
    admin = AdminClient(confluent_client(secured.as_user(user)))
    error = admin.list_topics(topic, timeout=WAIT_S_MAX).topics[topic].error
    assert error is None or error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, error
    return error is not None


def test_a_client_reads_what_was_set_aside_and_no_other_reading(secured: Secured) -> None:
    deployment = load_deployment(secured.deployment)
    names = deployment.names
    ensure_topics(secured.broker.cluster, topic_specs(deployment, {"lab": PARTITIONS}), WAIT_S_MAX)
    config = {"group.id": "anybody", "enable.partition.eof": True}
    consumer = Consumer(confluent_client(secured.as_user(Role.CLIENT)) | config)
    try:
        consumer.assign([TopicPartition(names.quarantine("lab"), 0, 0)])
        message = consumer.poll(WAIT_S_MAX)
        assert message is not None
        error = message.error()
        assert error is None or error.code() == KafkaError._PARTITION_EOF, error
    finally:
        consumer.close()
    assert hidden(secured, Role.CLIENT, names.source("lab.0"))
    assert hidden(secured, Role.CLIENT, "lab-readings")
    assert hidden(secured, Role.EXPORTER, names.quarantine("lab"))


@pytest.mark.parametrize("role", Role)
def test_only_the_admin_makes_topics(secured: Secured, role: Role) -> None:
    name = f"sw.source.{role}"
    answers = Admin(secured.as_user(role)).ask(
        lambda client: client.create_topics([NewTopic(name, 1, 1)]), WAIT_S_MAX
    )
    refused = [error.code() for error in answers.refused.values()]
    if role is Role.ADMIN:
        assert refused in ([], [KafkaError.TOPIC_ALREADY_EXISTS]), answers
    else:
        assert refused == [KafkaError.TOPIC_AUTHORIZATION_FAILED], answers


def test_a_wrong_password_and_a_broker_without_a_trusted_certificate_are_reported(
    secured: Secured,
) -> None:
    users = {OWNER: "wrong"}
    wrong = BrokerSecurity(secured.security.folder, OWNER, users)
    cluster = wrong.cluster(secured.broker.bootstrap)
    # A refusal is waited for until the time-out; a busy machine may need more of it.
    eventually(lambda: "invalid credentials" in (why_no_answer(cluster, 5) or ""))
    assert why_no_answer(secured.broker.bootstrap, 2) is not None, "not in plaintext"


def test_the_commands_read_the_roles_file(secured: Secured) -> None:
    deployment = load_deployment(secured.deployment)
    ensure_topics(secured.broker.cluster, topic_specs(deployment, {"lab": PARTITIONS}), WAIT_S_MAX)
    command = [".venv/bin/slackwater", "query", "list", "--kafka-config", str(secured.files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
    assert done.returncode == 0, done.stderr
    assert not any(secret.decode() in done.stderr for secret in passwords(secured))


def test_up_secure_lets_nobody_in_without_its_file(tmp_path: Path) -> None:
    deployment, data = tmp_path / "d.yaml", tmp_path / "data"
    deployment.write_text(DEPLOYMENT)
    stack = StackThread(StackOptions(deployment, load_deployment(deployment), data, secure=True))
    try:
        stack.open()
        given = [data / "client.properties", data / "kcat.conf"]
        assert [stat.S_IMODE(file.stat().st_mode) for file in given] == [0o600, 0o600]
        ours, kcats = (find_cluster(None, file, Role.CLIENT) for file in given)
        assert why_no_answer(ours, WAIT_S_MAX) is None
        assert why_no_answer(kcats, WAIT_S_MAX) is None
        assert why_no_answer(ours.bootstrap, 1) is not None, "a plaintext connection is refused"
        lines = (data / "kcat.conf").read_text().splitlines()
        config: dict[str, Any] = dict(line.split("=", 1) for line in lines)
        assert "lab-readings" in AdminClient(config).list_topics(timeout=WAIT_S_MAX).topics
        listed = ["kcat", "-F", str(given[1]), "-L"]
        if shutil.which(listed[0]) is not None:  # of whatever version
            done = subprocess.run(listed, capture_output=True, text=True, check=False)
            assert 'topic "lab-readings"' in done.stdout, done.stderr
        run = json.loads((data / "run.json").read_text())
        assert run["kafka_config"] == str(given[0])
        password = ours.security.confluent()["sasl.password"].encode()
        left = {path.name for path, content in files(data) if password in content}
        assert left == {"client.properties"}
        for process in psutil.Process().children(recursive=True):
            assert password.decode() not in " ".join(process.cmdline())
    finally:
        stack.stop()
    opened = StackThread(StackOptions(deployment, load_deployment(deployment), data))
    try:
        with pytest.raises(UsageError, match="add --secure"):
            opened.open()
    finally:
        opened.stop()
