"""Checks of a stream whose messages are bare numbers: what such a message cannot have."""

from __future__ import annotations

from typing import Final

from slackwater.deployment.findings import Findings
from slackwater.deployment.shapes import StreamShape
from slackwater.deployment.yaml_lines import Path as Place

_ONE_FIELD: Final = "has {n} fields: a message of format: number is one value"
_NO_PATH: Final = "a message of format: number has no fields in it: use a list, [{name}]"
_NO_KEY: Final = "a message of format: number has no fields: use {right}"
_NO_TIME: Final = "a message of format: number has no time in it: use {right}"
_NO_SEQUENCE: Final = "a message of format: number has no counter"


def check_number_format(shape: StreamShape, place: Place, findings: Findings) -> None:
    """Check a stream whose format is ``number``; others are left alone."""
    is_number = [given.format == "number" for given in (shape.topic, shape.mqtt) if given]
    if not any(is_number):
        return
    of_topic = shape.topic is not None
    if len(shape.fields_) != 1:
        findings.error((*place, "fields"), _ONE_FIELD.format(n=len(shape.fields_)))
    if shape.texts:
        findings.error((*place, "texts"), "a message of format: number has no texts")
    for name, source in shape.fields_.items():
        if source != name:
            findings.error((*place, "fields", name), _NO_PATH.format(name=name))
    for part, name in (("field", "field"), ("fields", "fields_")):
        if getattr(shape.key, name):
            right = "from: record or value" if of_topic else "level, levels or value"
            findings.error((*place, "key", part), _NO_KEY.format(right=right))
        if getattr(shape.time, name):
            right = "from: record" if of_topic else "from: arrival"
            findings.error((*place, "time", part), _NO_TIME.format(right=right))
    for at, given in (("mqtt", shape.mqtt), ("topic", shape.topic)):
        if given is not None and given.sequence is not None:
            findings.error((*place, at, "sequence"), _NO_SEQUENCE)
