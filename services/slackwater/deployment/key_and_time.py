"""Checks of what a stream declares about the keys and event times of its readings.

Key and time are in a reading (a column of a file, a field of a message), or in what carries it: the
topic of an MQTT message, the record of a Kafka topic, the moment of arrival. Each kind of input has
some of these sources. One that an input cannot have is refused with the one that it has.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Final

from slackwater.deployment.findings import Findings
from slackwater.deployment.shapes import StreamShape
from slackwater.deployment.shaping import exactly_one
from slackwater.deployment.yaml_lines import Path as Place
from slackwater.deployment.zones import check_zone
from slackwater.model.deployment import KEY_JOIN, TIME_JOIN, KeySpec, TimeSpec

ZONE_NAME: Final = (
    "{written!r} has %Z, the name of a zone: which names are known depends on the machine, and "
    "none has an offset (CET would be read as UTC); use {offset!r} if the times have an offset "
    "such as +01:00, {literal!r} if all of them have this name, or zone: for local times"
)
_IN_READINGS: Final = ("column", "columns", "field", "fields")
_OF_TEXTS: Final = ("unit", "format", "zone", "fold", "join")
"""What a time needs that is written in a reading."""
_NO_RECORD: Final = "is the {what} of a Kafka record, which only a stream with topic has"
_NO_ARRIVAL_OF_TOPIC: Final = (
    "is for a stream with mqtt or http: a message of a topic has arrived at Kafka before; the time "
    "of its record is from: record"
)
_NO_ARRIVAL_OF_FILE: Final = (
    "is for a stream with mqtt or http: the readings of a file arrive when it is read; name the "
    "column or field of their times"
)
_NO_ARRIVAL_OF_DATA: Final = (
    "needs clock: wall: with clock: data the readings are the clock, however late they arrive"
)
_IN_ORDER: Final = "is for times of devices: by its arrival no reading is out of order"


class KeyAndTimeChecker:
    """Converts ``key`` and ``time`` of streams to specifications."""

    def __init__(self, findings: Findings, clock: object) -> None:
        self._findings = findings
        self._clock = clock

    def key(self, shape: StreamShape, place: Place) -> KeySpec | None:
        """Return the specification of the key; None if it has no source, or several."""
        key = shape.key
        wanted: tuple[str, ...] = ("column", "columns", "field", "fields", "value")
        if shape.mqtt is not None:
            wanted = ("field", "fields", "level", "levels", "value")
        elif shape.topic is not None:
            wanted = ("column", "field", "fields", "from", "value")
        for name in ("level", "levels"):
            if shape.mqtt is None and getattr(key, name) is not None:
                reason = f"{name} is for a stream with mqtt: levels are those of a message's topic"
                self._findings.error((*place, name), reason)
        if shape.topic is None and key.from_ is not None:
            self._findings.error((*place, "from"), _NO_RECORD.format(what="key"))
            return None
        if not exactly_one(key, wanted, place, self._findings):
            return None
        columns, fields = key.columns or (), key.fields_ or ()
        self._fits(shape, key.column or columns, key.field or fields, place)
        self._joins(key.join, key.columns or key.fields_ or key.levels, place)
        spec = KeySpec(
            column=key.column,
            field=key.field,
            value=key.value,
            level=key.level,
            from_=key.from_,
            columns=columns,
            fields=fields,
            levels=key.levels or (),
            join=KEY_JOIN if key.join is None else key.join,
        )
        if shape.http is None:
            return spec
        # JSON has fields and CSV has columns; a stream that accepts both uses one name.
        column = key.column or key.field
        return replace(spec, column=column, field=None, columns=columns or fields, fields=())

    def time(self, shape: StreamShape, place: Place) -> TimeSpec | None:
        """Return the specification of the time; None if it has no source or form, or several."""
        given = shape.time
        if given.from_ is not None:
            return self._carried(shape, place)
        sound = exactly_one(given, _IN_READINGS, place, self._findings)
        sound = exactly_one(given, ("unit", "format"), place, self._findings) and sound
        if not sound:
            return None
        columns = given.columns or ((given.column,) if given.column else ())
        fields = given.fields_ or ()
        self._fits(shape, columns, given.field or fields, place)
        several = given.columns or given.fields_
        self._joins(given.join, several, place)
        if several is not None and len(several) > 1 and given.unit not in (None, "iso"):
            what = "columns" if given.columns else "fields"
            reason = f"several joined {what} are not a number: use unit: iso or a format"
            self._findings.error((*place, "unit"), reason)
        if given.format is not None:
            self._format(given.format, (*place, "format"))
        check_zone(given, place, self._findings)
        field = given.field
        if shape.http is not None:
            columns, field, fields = columns or fields or ((field,) if field else ()), None, ()
        return TimeSpec(
            columns=columns,
            field=field,
            unit=given.unit,
            format=given.format,
            zone=given.zone,
            fold=given.fold or "refuse",
            fields=fields,
            join=TIME_JOIN if given.join is None else given.join,
        )

    def _joins(self, join: str | None, parts: object, place: Place) -> None:
        if join is not None and parts is None:
            reason = "stands between several parts: declare columns, fields or levels"
            self._findings.error((*place, "join"), reason)

    def _carried(self, shape: StreamShape, place: Place) -> TimeSpec:
        """Check a time that is not in the reading but in what carries it."""
        given, where = shape.time, (*place, "from")
        exactly_one(given, (*_IN_READINGS, "from"), place, self._findings)
        for name in _OF_TEXTS:
            if getattr(given, name) is not None:
                reason = f"is for times in readings: from: {given.from_} needs none"
                self._findings.error((*place, name), reason)
        if given.from_ == "record":
            if shape.topic is None:
                is_pushed = shape.mqtt is not None or shape.http is not None
                hint = "; the time of arrival is from: arrival" if is_pushed else ""
                self._findings.error(where, _NO_RECORD.format(what="time") + hint)
        elif shape.topic is not None:
            self._findings.error(where, _NO_ARRIVAL_OF_TOPIC)
        elif shape.mqtt is None and shape.http is None:
            self._findings.error(where, _NO_ARRIVAL_OF_FILE)
        elif self._clock == "data":
            self._findings.error(where, _NO_ARRIVAL_OF_DATA)
        elif shape.disorder:
            self._findings.error((*place[:-1], "disorder"), _IN_ORDER)
        return TimeSpec(from_=given.from_)

    def _format(self, written: str, place: Place) -> None:
        try:
            time.strptime("", written)
        except ValueError as error:
            if "does not match format" not in str(error):
                self._findings.error(place, f"{written!r} is not a strptime format: {error}")
        except re.error:
            self._findings.error(place, f"{written!r} is not a strptime format: repeated directive")
        if not re.search(r"%[YyGcx]", written.replace("%%", "")):
            self._findings.error(place, f"{written!r} has no year (%Y)")
        if re.search(r"%Z", written.replace("%%", "")):
            offset, literal = written.replace("%Z", "%z"), written.replace("%Z", "UTC")
            reason = ZONE_NAME.format(written=written, offset=offset, literal=literal)
            self._findings.error(place, reason)

    def _fits(self, shape: StreamShape, columns: object, field: object, place: Place) -> None:
        """Check that messages are read by field, and a file by one of both; HTTP accepts both."""
        if shape.http is not None:
            return
        if shape.topic is not None or shape.mqtt is not None:
            if columns:
                self._findings.error(place, "messages have no columns: use field")
        elif (field and not shape.is_json_file) or (columns and shape.is_json_file):
            other = "field" if shape.is_json_file else "column"
            reason = f"a file has columns (CSV) or fields (JSON), and time names a {other}: use one"
            self._findings.error(place, reason)
