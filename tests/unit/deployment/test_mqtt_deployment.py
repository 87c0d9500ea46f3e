"""A stream with ``mqtt`` in the deployment file."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from slackwater.cli import ingest
from slackwater.deployment.parse import parse_deployment
from slackwater.model.deployment import KeySpec
from slackwater.model.errors import DeploymentError, UsageError
from slackwater.model.mqtt import MqttSpec, MqttTlsSpec

FILE = """
apiVersion: slackwater/v1
{top}
streams:
  lab:
    mqtt: {{{mqtt}}}
    key: {key}
    time: {{field: at, unit: ms}}
    fields: [t]
    {silence}
  other:
    mqtt: {{broker: h, topics: [x], client_id: taken}}
    key: {{value: v}}
    time: {{field: at, unit: ms}}
    fields: [t]
    expect_every: 5s
queries:
  q: {{from: [lab, other], window: {{size: 1m}}, aggregate: [count], bound: 2s}}
"""

RUN = SimpleNamespace(site=None, deployment="d.yaml")


def text(
    mqtt: str = "broker: h, topics: [lab/+/t]",
    key: str = "{level: 2}",
    silence: str = "expect_every: 5s",
    top: str = "clock: wall",
) -> str:
    return FILE.format(mqtt=mqtt, key=key, silence=silence, top=top)


def error(mqtt: str = "broker: h, topics: [lab/+/t]", **others: str) -> str:
    with pytest.raises(DeploymentError) as raised:
        parse_deployment(text(mqtt, **others), "f.yaml")
    return str(raised.value)


def test_defaults() -> None:
    spec = parse_deployment(text(), "f.yaml").deployment.streams["lab"]
    assert spec.key == KeySpec(level=2)
    assert spec.mqtt == MqttSpec("h", 1883, ("lab/+/t",), "slackwater-lab")
    assert spec.mqtt.version == "5"
    assert (spec.mqtt.qos, spec.mqtt.in_flight) == (1, 10)


def test_all_fields() -> None:
    given = (
        "broker: '[::1]', topics: [a/#, b], version: 3.1.1, format: json, client_id: c, qos: 0, "
        "in_flight: 100, session: 1d, username: u, password_file: p, sequence: {field: n.x}, "
        "tls: {ca_file: ca, cert_file: cert, key_file: key}"
    )
    spec = parse_deployment(text(given, "{field: k}"), "f.yaml").deployment.streams["lab"]
    assert spec.mqtt == MqttSpec(
        "::1",
        8883,
        ("a/#", "b"),
        "c",
        version="3.1.1",
        qos=0,
        in_flight=100,
        session_us=86_400_000_000,
        tls=MqttTlsSpec("ca", "cert", "key"),
        username="u",
        password_file="p",
        sequence="n.x",
    )


def test_the_client_id_has_the_prefix_of_the_deployment() -> None:
    spec = parse_deployment(text(top="prefix: plant-7."), "f.yaml").deployment.streams["lab"]
    assert spec.mqtt is not None
    assert spec.mqtt.client_id == "slackwater-plant-7.lab"


@pytest.mark.parametrize(
    ("mqtt", "expected"),
    [
        ("broker: h:x, topics: [a/b]", "mqtt.broker: 'h:x': 'x' is not a port"),
        ("broker: h", "mqtt.topics: is required"),
        ("broker: h, topics: [a]", "mqtt.topics[0]: 'a': matching topics have no level 2"),
        ("broker: h, topics: [a/#/b]", "# must be the complete last level"),
        ("broker: h, topics: [$share/g/a]", "a shared subscription"),
        ("broker: h, topics: [a/b, a/+]", "'a/b' and 'a/+' match the same topics"),
        ("broker: h, topics: [a/b], qos: 2", "a crash would lose it: set qos: 1"),
        ("broker: h, topics: [a/b], version: 4", "mqtt.version: must be '3.1.1' or '5'"),
        ("broker: h, topics: [a/b], in_flight: 0", "mqtt.in_flight"),
        ("broker: h, topics: [a/b], format: xml", "mqtt.format"),
        ("broker: h, topics: [a/b], client_id: taken", "also the client id of stream lab"),
        ("broker: h, topics: [a/b], password_file: p", "username: is required"),
        ("broker: h, topics: [a/b], tls: {cert_file: c}", "needs cert_file and key_file"),
        ("broker: h, topics: [a/b], clientid: c", "did you mean 'client_id'?"),
        ("broker: h, topics: [a/b], sequence: n", "sequence"),
    ],
)
def test_mistakes_are_named_with_their_place(mqtt: str, expected: str) -> None:
    message = error(mqtt)
    assert expected in message
    assert message.startswith("f.yaml:")


def test_a_silence_must_be_declared() -> None:
    assert "an MQTT broker does not show whether a silent producer" in error(silence="")


def test_readings_in_messages_have_no_columns() -> None:
    assert "takes exactly one of field, fields, level, levels or value" in error(key="{column: k}")


def test_a_level_needs_a_topic_with_levels() -> None:
    given = text().replace("mqtt: {broker: h, topics: [lab/+/t]}", "topic: {name: t, format: json}")
    with pytest.raises(DeploymentError, match="level is for a stream with mqtt"):
        parse_deployment(given, "f.yaml")


def test_a_stream_has_one_source() -> None:
    topic = "    topic: {name: t, format: json}\n    mqtt: {broker: h, topics: [lab"
    given = text().replace("    mqtt: {broker: h, topics: [lab", topic)
    with pytest.raises(DeploymentError, match="a stream has only one of topic, mqtt and http"):
        parse_deployment(given, "f.yaml")


def test_a_password_in_clear_is_warned_of() -> None:
    given = "broker: {host}, topics: [a/b], username: u, password_file: p"
    for host, count in (("h", 1), ("localhost", 0), ("127.0.0.1", 0)):
        warnings = parse_deployment(text(given.format(host=host)), "f.yaml").warnings
        assert sum("unencrypted" in warning for warning in warnings) == count


def test_no_file_is_ingested_into_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d.yaml").write_text(text())
    monkeypatch.setattr(
        ingest, "read_run", lambda _: SimpleNamespace(site=None, deployment="d.yaml")
    )
    monkeypatch.setattr(ingest, "is_running", lambda _: True)
    with pytest.raises(UsageError, match="lab is fed by MQTT broker h:1883: publish there"):
        ingest.run_ingest(tmp_path, {"lab": tmp_path / "a.csv"}, tmp_path / "d.yaml", None, True)
