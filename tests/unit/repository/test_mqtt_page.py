"""The page on MQTT: its deployment is valid, and its message is a reading of its stream."""

from __future__ import annotations

import re
from pathlib import Path

from slackwater.deployment.parse import parse_deployment
from slackwater.proxy.mqtt.link import Message
from slackwater.proxy.mqtt.messages import MqttReader

PAGE = (Path(__file__).parents[3] / "docs/howto/read-from-mqtt.md").read_text()


def test_what_the_page_shows_is_taken() -> None:
    (declared,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    checked = parse_deployment(declared, "page.yaml")
    spec = checked.deployment.streams["climate"]
    (topic, message) = re.findall(r"-t (\S+) -m '(.*)'", PAGE)[0]
    payload = re.sub(r"'\$\(date \+%s%3N\)'", "1458031648545", message).encode()
    (readings,) = MqttReader(spec, None).read(0, [Message(topic, payload, len(payload))])
    parsed = readings.parsed
    assert not checked.warnings
    assert not parsed.bad
    assert [parsed.keys[i] for i in parsed.key_index] == ["room-1"]
    assert parsed.stimes.tolist() == [1_458_031_648_545_000]
    assert parsed.values[0].tolist() == [21.4]
    assert readings.sequences.tolist() == [1]
