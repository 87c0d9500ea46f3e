"""Checks of one stream: its key, its event time, its source, and the meaning of silence."""

from __future__ import annotations

import re
import time
from typing import Any, Final

from slackwater.deployment.findings import Findings
from slackwater.deployment.shapes import AUTO, StreamShape, TopicShape
from slackwater.deployment.shaping import check_name, exactly_one, not_yet, shaped
from slackwater.deployment.yaml_lines import Path as Place
from slackwater.model.deployment import CsvSpec, FieldSpec, KeySpec, StreamSpec, TimeSpec, TopicSpec
from slackwater.model.names import OURS, Names
from slackwater.primitives.lateness import LEARNING

SILENCE_UNDECLARED: Final = (
    "a topic does not tell a producer that has nothing to send from one that is cut off. "
    "Add one line to this stream: `expect_every: auto` (after a longer silence than its readings "
    "ever make it is missing, and answers are tentative until it is back), `expect_every: 5s` (the "
    "same after a silence that you know), or `sporadic: true` (no readings means that there are "
    "none: what comes later than its disorder goes to quarantine)"
)
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


class StreamChecker:
    """Turns one stream of the file into its specification."""

    def __init__(self, names: Names, findings: Findings) -> None:
        self._names = names
        self._findings = findings

    def stream(self, name: str, value: Any) -> StreamSpec | None:
        """None if anything is wrong that the rest of the file depends on."""
        place: Place = ("streams", name)
        check_name(name, place, self._findings)
        shape = shaped(StreamShape, value, place, self._findings)
        if shape is None:
            return None
        key = self._key(shape, (*place, "key"))
        times = self._time(shape, (*place, "time"))
        self._source(shape, place)
        self._silence(shape, place)
        if key is None or times is None:
            return None
        return StreamSpec(
            name=name,
            key=key,
            time=times,
            fields=tuple(FieldSpec(n, source) for n, source in shape.fields_.items()),
            csv=CsvSpec() if shape.csv is None else CsvSpec(shape.csv.delimiter, shape.csv.decimal),
            topic=_topic_spec(shape.topic),
            disorder_us=shape.disorder,
            expect_every_us=LEARNING.first_us if shape.expect_every == AUTO else shape.expect_every,
            learns_gaps=shape.expect_every == AUTO,
        )

    def _key(self, shape: StreamShape, place: Place) -> KeySpec | None:
        key = shape.key
        if not exactly_one(key, ("column", "field", "value"), place, self._findings):
            return None
        self._fits(shape, key.column, key.field, place)
        return KeySpec(key.column, key.field, key.value)

    def _time(self, shape: StreamShape, place: Place) -> TimeSpec | None:
        given = shape.time
        sound = exactly_one(given, ("column", "columns", "field"), place, self._findings)
        sound = exactly_one(given, ("unit", "format"), place, self._findings) and sound
        if not sound:
            return None
        columns = given.columns or ((given.column,) if given.column else ())
        self._fits(shape, columns, given.field, place)
        if len(columns) > 1 and given.unit in ("s", "ms", "us"):
            reason = "several columns joined are no number: say unit: iso or a format"
            self._findings.error((*place, "unit"), reason)
        if given.format is not None:
            self._format(given.format, (*place, "format"))
        return TimeSpec(columns, given.field, given.unit, given.format)

    def _format(self, written: str, place: Place) -> None:
        try:
            time.strptime("", written)
        except ValueError as error:
            if "does not match format" not in str(error):
                self._findings.error(place, f"{written!r} is no strptime format: {error}")
        except re.error:
            self._findings.error(place, f"{written!r} is no strptime format: a part is twice in it")
        if not re.search(r"%[YyGcx]", written.replace("%%", "")):
            self._findings.error(place, f"{written!r} has no year (%Y)")

    def _fits(self, shape: StreamShape, columns: object, field: object, place: Place) -> None:
        """A topic's readings have fields, a file's have columns."""
        if shape.topic is not None and columns:
            reason = "the readings of a topic have no columns: say field"
            self._findings.error(place, reason)
        if shape.topic is None and field:
            reason = "field is for a stream with a topic: a column of a file is column"
            self._findings.error(place, reason)

    def _source(self, shape: StreamShape, place: Place) -> None:
        if shape.csv is not None:
            if shape.topic is not None:
                self._findings.error((*place, "csv"), "a stream with a topic reads no file")
            delimiter = shape.csv.delimiter
            visible = delimiter == "\t" or (delimiter.isascii() and delimiter.isprintable())
            taken = delimiter == shape.csv.decimal or delimiter.isalnum() or delimiter in '"-+. _'
            if taken or not visible:
                reason = f"{delimiter!r} cannot delimit columns: take one such as , ; | or a tab"
                self._findings.error((*place, "csv", "delimiter"), reason)
        if shape.topic is None:
            return
        name = shape.topic.name
        if not _TOPIC.fullmatch(name) or name in (".", ".."):
            self._findings.error((*place, "topic", "name"), f"{name!r} is no name of a topic")
        elif name.startswith("__"):
            reason = f"{name!r} is one of Kafka's own topics"
            self._findings.error((*place, "topic", "name"), reason)
        elif name.startswith(OURS) or self._names.is_ours(name):
            reason = f"{name!r} is one of slackwater's own topics"
            self._findings.error((*place, "topic", "name"), reason)
        if shape.topic.format == "avro":
            not_yet((*place, "topic", "format"), "topics of Avro readings", self._findings)

    def _silence(self, shape: StreamShape, place: Place) -> None:
        """The meaning of silence must be declared where it cannot be derived (rule-9)."""
        if shape.sporadic and shape.expect_every is not None:
            reason = "takes expect_every or sporadic: true, not both"
            self._findings.error((*place, "sporadic"), reason)
        if shape.topic is not None and not shape.sporadic and shape.expect_every is None:
            self._findings.error((*place, "expect_every"), SILENCE_UNDECLARED)


def _topic_spec(topic: TopicShape | None) -> TopicSpec | None:
    return None if topic is None else TopicSpec(topic.name, topic.format, topic.from_)
