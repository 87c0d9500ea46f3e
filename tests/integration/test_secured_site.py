"""A site whose link to the centre has TLS, and credentials that may do what an uplink does.

The centre's Kafka has access control lists, deny by default. The site's file names the credentials,
and the centre's windows are exact: so the rights that ``slackwater acl --role uplink`` prints are
enough. They are no more than that.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from tests.integration.test_children import TOPIC
from tests.integration.test_secured import OWNER, Secured, hidden, refusal
from tests.integration.test_sites import PARTITIONS, Place, deployment_with, running
from tests.support.certificates import private
from tests.support.starting import make_topics
from tests.support.waiting import eventually

from slackwater.deployment.parse import load_deployment
from slackwater.machine.broker import EmbeddedBroker
from slackwater.machine.broker_security import BrokerSecurity
from slackwater.runtime.security.acl import rules
from slackwater.runtime.security.credentials import Role

pytestmark = [pytest.mark.slow, pytest.mark.drill]


@dataclass
class Linked:
    """The secured centre, and the site."""

    secured: Secured
    centre: Place
    north: Place


@pytest.fixture(name="linked", scope="module")
def _linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Linked]:
    tmp_path = tmp_path_factory.mktemp("sites")
    users = {str(name): secrets.token_urlsafe(24) for name in (OWNER, Role.UPLINK)}
    security = BrokerSecurity(tmp_path / "tls", OWNER, users)
    path, files = tmp_path / "deployment.yaml", tmp_path / "files"
    files.mkdir()
    with (
        EmbeddedBroker(tmp_path / "centre", security=security) as broker,
        EmbeddedBroker(tmp_path / "north") as own,
    ):
        secured = Secured(broker, security, files, path)
        path.write_text(deployment_with(broker.bootstrap, f", kafka_config: {files}"))
        for user, name in ((OWNER, "owner"), (Role.UPLINK, Role.UPLINK)):
            of_user = BrokerSecurity(security.folder, str(user), users)
            text = of_user.client_properties(broker.bootstrap)
            private(files / f"{name}.properties", text.encode())
        secured.allow(str(Role.UPLINK), *rules(Role.UPLINK, load_deployment(path)))
        owner = secured.as_user(OWNER)
        make_topics(owner, [TOPIC], PARTITIONS)
        make_topics(own.bootstrap, [TOPIC], PARTITIONS)
        config = files / "owner.properties"
        with (
            running(path, tmp_path / "data-centre", owner, kafka_config=config) as centre,
            running(path, tmp_path / "data-north", own.bootstrap, "north") as north,
        ):
            yield Linked(secured, centre, north)


def test_the_rights_of_an_uplink_are_enough_and_no_more(linked: Linked) -> None:
    secured, centre, north = linked.secured, linked.centre, linked.north
    begun = time.time()
    centre.await_window("stable", begun + 3)
    sent = {at: len(of) for at, of in north.sender.sent.items()}
    for at, of in centre.sender.sent.items():
        sent[at] = sent.get(at, 0) + len(of)
    rows = {at: row for at, row in centre.rows("stable").items() if begun + 1 <= at[0] <= begun + 2}
    assert rows
    for at, row in rows.items():
        assert row["fields"]["x"]["count"] == sent[at], at

    deployment = load_deployment(secured.deployment)
    names = deployment.names
    for topic in (names.registry, names.deltas("lab", 0), names.state("lab")):
        error = refusal(secured, Role.UPLINK, topic)
        assert error is not None, topic
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, topic
    assert hidden(secured, Role.UPLINK, names.results("lab", "stable"))
    password = secured.security.users[str(Role.UPLINK)].encode()
    for pid in north.stack.pids().values():
        assert password not in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_an_uplink_that_is_refused_says_so_and_goes_on_when_it_may(linked: Linked) -> None:
    secured, centre, north = linked.secured, linked.centre, linked.north
    centre.await_window("stable", time.time() + 2)
    logs = secured.deployment.parent / "data-north" / "logs"
    file = secured.files / "uplink.properties"
    right = file.read_bytes()
    wrong = BrokerSecurity(secured.security.folder, "uplink", {"uplink": "wrong"})
    private(file, wrong.client_properties(secured.broker.bootstrap).encode())
    north.kill_hosts()
    since = time.time()
    centre.await_window("tentative", since + 4)
    eventually(lambda: is_refused(logs), "the uplink's log has the reason")
    private(file, right)
    north.kill_hosts()
    centre.await_window("stable", time.time() + 1)
    wanted = range(int(since) + 1, int(since) + 5)
    eventually(
        lambda: {second for second, _ in centre.rows("stable")} >= set(wanted),
        "windows of that time are exact",
    )


def is_refused(logs: Path) -> bool:
    """Return whether an uplink's log has that its credentials are refused."""
    lines = [line for each in logs.glob("host-*.log") for line in each.read_text().splitlines()]
    return any("WARNING uplink/" in line and "uthentication" in line for line in lines)
