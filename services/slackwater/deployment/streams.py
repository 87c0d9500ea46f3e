"""Checks of one stream: its source, and the meaning of silence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from slackwater.deployment.findings import Findings
from slackwater.deployment.key_and_time import KeyAndTimeChecker
from slackwater.deployment.meanings import check_meanings
from slackwater.deployment.mending import shaped_or_mended
from slackwater.deployment.message_paths import check_paths
from slackwater.deployment.mqtt import MqttChecker
from slackwater.deployment.number_format import check_number_format
from slackwater.deployment.shapes import AUTO, SequenceShape, StreamShape, TopicShape
from slackwater.deployment.shaping import check_name
from slackwater.deployment.yaml_lines import Path as Place
from slackwater.model.deployment import (
    AHEAD_DEFAULT_US,
    CsvSpec,
    FieldSpec,
    HttpInputSpec,
    RegistrySpec,
    StreamSpec,
    TopicSpec,
)
from slackwater.model.durations import format_duration_us
from slackwater.model.names import OURS, Names
from slackwater.primitives.lateness import LEARNING

SILENCE_UNDECLARED: Final = (
    "{source} does not show whether a silent producer has nothing to send or is disconnected. "
    "Add one line to this stream: `expect_every: auto` (the usual gaps between its readings are "
    "learned; after a longer silence it is missing, and answers are tentative until it returns), "
    "`expect_every: 5s` (the same after a silence of this length), or `sporadic: true` (silence "
    "means that there are no readings; readings later than its disorder go to quarantine)"
)
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


class StreamChecker:
    """Converts the streams of the file to specifications, one by one."""

    def __init__(self, names: Names, findings: Findings, clock: object = "wall") -> None:
        """``clock``: as written in the file."""
        self._names = names
        self._findings = findings
        self._clock = clock
        self._mqtt = MqttChecker(names, findings)
        self._declared = KeyAndTimeChecker(findings, clock)

    def stream(self, name: str, value: Any) -> StreamSpec | None:
        """Return the specification; None if key, time or the type of a field is invalid.

        After other errors the specification is usable for the checks of queries.
        """
        place: Place = ("streams", name)
        check_name(name, place, self._findings)
        shape, mended = shaped_or_mended(StreamShape, value, place, self._findings)
        if shape is None:
            return None
        with self._findings.ignoring(mended):
            spec = self._spec(name, shape, place)
        has_fields = not any(at[len(place)] in {"fields", "texts"} for at in mended)
        return spec if has_fields else None

    def _spec(self, name: str, shape: StreamShape, place: Place) -> StreamSpec | None:
        key = self._declared.key(shape, (*place, "key"))
        times = self._declared.time(shape, (*place, "time"))
        self._source(shape, place)
        self._silence(shape, place)
        check_paths(shape, place, self._findings)
        for text in shape.texts.keys() & shape.fields_.keys():
            reason = "is declared as a number too, in fields"
            self._findings.error((*place, "texts", text), reason)
        check_number_format(shape, place, self._findings)
        missing, values = check_meanings(shape, place, self._findings)
        mqtt = self._mqtt.spec(name, shape)
        if key is None or times is None:
            return None
        return StreamSpec(
            name=name,
            key=key,
            time=times,
            fields=(
                *(FieldSpec(n, source) for n, source in shape.fields_.items()),
                *(FieldSpec(n, source, is_text=True) for n, source in shape.texts.items()),
            ),
            csv=CsvSpec() if shape.csv is None else CsvSpec(**shape.csv.model_dump()),
            topic=self._topic_spec(shape.topic),
            mqtt=mqtt,
            http=None
            if shape.http is None
            else HttpInputSpec(shape.http.token_file, _counter(shape.http.sequence)),
            disorder_us=shape.disorder,
            ahead_us=self._ahead(shape, (*place, "ahead")),
            expect_every_us=LEARNING.first_us if shape.expect_every == AUTO else shape.expect_every,
            learns_gaps=shape.expect_every == AUTO,
            site=shape.site or "",
            missing=missing,
            values=values,
        )

    def _source(self, shape: StreamShape, place: Place) -> None:
        if shape.csv is not None:
            if shape.topic is not None or shape.mqtt is not None:
                reason = "a stream with topic or mqtt does not read files"
                self._findings.error((*place, "csv"), reason)
            elif shape.http is None and shape.is_json_file:
                self._findings.error((*place, "csv"), "files of fields are JSON: use column")
            delimiter = shape.csv.delimiter
            visible = delimiter == "\t" or (delimiter.isascii() and delimiter.isprintable())
            taken = delimiter == shape.csv.decimal or delimiter.isalnum() or delimiter in '"-+. _'
            if taken or not visible:
                reason = f"{delimiter!r} cannot delimit columns: use one such as , ; | or a tab"
                self._findings.error((*place, "csv", "delimiter"), reason)
        given = [name for name in ("topic", "mqtt", "http") if getattr(shape, name) is not None]
        if len(given) > 1:
            reason = f"a stream has only one of topic, mqtt and http, not {' and '.join(given)}"
            self._findings.error((*place, given[-1]), reason)
        if shape.topic is None:
            return
        name = shape.topic.name
        if not _TOPIC.fullmatch(name) or name in (".", ".."):
            self._findings.error((*place, "topic", "name"), f"{name!r} is not a valid topic name")
        elif name.startswith("__"):
            reason = f"{name!r} is one of Kafka's own topics"
            self._findings.error((*place, "topic", "name"), reason)
        elif name.startswith(OURS) or self._names.is_ours(name):
            reason = f"{name!r} is one of slackwater's own topics"
            self._findings.error((*place, "topic", "name"), reason)
        self._schemas(shape.topic, (*place, "topic"))

    def _schemas(self, topic: TopicShape, place: Place) -> None:
        """Check that Avro's schemas are declared, and that other formats declare none."""
        given = [name for name in ("registry", "schemas") if getattr(topic, name) is not None]
        if topic.format == "avro" and not given:
            reason = "avro needs registry (a URL), or schemas (a file or a folder of files)"
            self._findings.error((*place, "format"), reason)
        if topic.format != "avro":
            for name in given:
                self._findings.error((*place, name), f"is for format: avro, not {topic.format}")
        if topic.registry is not None:
            self._registry_url(topic.registry.url, (*place, "registry"))

    def _registry_url(self, url: str, place: Place) -> None:
        try:
            parts = urlsplit(url)
            sound = parts.scheme in ("http", "https") and bool(parts.hostname) and "," not in url
        except ValueError:
            sound = False
        if not sound:
            self._findings.error(place, "must be a URL that begins with http:// or https://")
        elif parts.username is not None or parts.password is not None:
            self._findings.error(
                place, "put the credentials into a file: {url: ..., credentials: F}"
            )

    def _topic_spec(self, topic: TopicShape | None) -> TopicSpec | None:
        if topic is None:
            return None
        given = topic.registry
        credentials = None if given is None else self._file(given.credentials)
        registry = None if given is None else RegistrySpec(given.url, credentials)
        return TopicSpec(
            name=topic.name,
            format=topic.format,
            from_=topic.from_,
            registry=registry,
            schemas=self._file(topic.schemas),
            proxies=topic.proxies,
            partitions=topic.partitions,
            sequence=_counter(topic.sequence),
        )

    def _file(self, name: str | None) -> str | None:
        """Return the path of a file that is named relative to the deployment file."""
        return None if name is None else str(Path(self._findings.where).parent / name)

    def _ahead(self, shape: StreamShape, place: Place) -> int:
        """Return how far a reading may be ahead of the clock; at least its disorder, or 0."""
        disorder = shape.disorder
        if shape.ahead is None:
            return max(AHEAD_DEFAULT_US, disorder)
        if self._clock == "data":
            reason = "is compared with the clock of the proxy: it needs clock: wall"
            self._findings.error(place, reason)
        elif 0 < shape.ahead < disorder:
            least = format_duration_us(disorder)
            reason = (
                f"is below disorder ({least}): readings in the order that disorder permits "
                f"would go to quarantine; use ahead: {least} or more, or ahead: 0s if no reading "
                "may be ahead of the clock"
            )
            self._findings.error(place, reason)
        return shape.ahead

    def _silence(self, shape: StreamShape, place: Place) -> None:
        """Check that the meaning of silence is declared if it cannot be derived (rule-9)."""
        if shape.sporadic and shape.expect_every is not None:
            reason = "takes expect_every or sporadic: true, not both"
            self._findings.error((*place, "sporadic"), reason)
        source = _live_source(shape)
        if source is not None and not shape.sporadic and shape.expect_every is None:
            reason = SILENCE_UNDECLARED.format(source=source)
            self._findings.error((*place, "expect_every"), reason)


def _counter(shape: SequenceShape | None) -> str | None:
    return None if shape is None else shape.field_


def _live_source(shape: StreamShape) -> str | None:
    """Return the kind of a live source; None if the stream is read from files."""
    sources = {"a topic": shape.topic, "an MQTT broker": shape.mqtt, "HTTP": shape.http}
    return next((name for name, given in sources.items() if given is not None), None)
