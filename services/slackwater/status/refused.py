"""What is in quarantine: entries by reason and fault, and the nearest repair.

The entries of ``sw.quarantine.<stream>`` are grouped by reason, and those of a reason by what is
wrong with them: the text of the entry without its numbers and quoted parts, or what its time looks
like. So readings with different faults have a repair each. Faults are bounded, since texts can hold
what a device sends; entries with further ones are in a group of their reason.

An entry may be written twice by a proxy that restarts, so distinct positions are counted
(trace-23). The advice is a guess from the last example of each group: a time in 1970 has another
unit than the declared one, a time that is whole half hours from the clock is a local time, and a
late reading needs a larger ``disorder``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from slackwater.codec.results import format_time, parse_time
from slackwater.model.deployment import StreamSpec
from slackwater.model.durations import format_duration_us
from slackwater.primitives.time_units import other_unit
from slackwater.runtime.logs.transport import Transport, read_range
from slackwater.status.queries import moment

ENTRIES_MAX: Final = 100_000
"""Entries that are read, the last ones."""
KEYS_MAX: Final = 1_000
"""Keys that are counted for each reason; the first ones."""
FAULTS_MAX: Final = 20
"""Faults that have a group of their own, in all reasons; the first ones."""
OTHERS: Final = "other faults"
"""The fault of the readings of a reason whose faults have no group of their own."""
ASK_S_MAX: Final = 5.0
HALF_HOUR_US: Final = 1_800_000_000
LOCAL_US_MAX: Final = 28 * HALF_HOUR_US + 120_000_000
"""No zone is further from UTC than 14 hours."""
LOCAL_ERROR_US: Final = 120_000_000
DISORDER_US_MAX: Final = 3_600_000_000
"""A larger delay is no matter of ``disorder``."""

ADVICE: Final = {
    "before_start": "older than the start of every query that reads the stream: write history"
    " before the first `up`, or apply the query with --from beginning",
    "duplicate": "sent again by its device: nothing is lost",
    "superseded": "another spool of the stream had used its id: see docs/protocols/rules.md",
    "crash": "its parser ended: keep the message, and report it",
}

FAULT_CHARS_MAX: Final = 200
_NUMBER: Final = re.compile(r"(?<![\w.])\d+(?:\.\d+)?\b")
"""A number that is no part of a name: ``field pm25`` is not ``field pm10``."""
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")


@dataclass(slots=True)
class RefusedGroup:
    """The entries with one reason and fault. Times are us of wall time."""

    reason: str
    fault: str = ""
    """Empty where the reason says it all."""
    count: int = 0
    first_at: int | None = None
    last_at: int | None = None
    example: Mapping[str, Any] = field(default_factory=dict)
    """The last entry."""
    behind_us_max: int = 0
    """The largest delay of its readings: time of the refusal less event time."""
    keys: dict[str, int] = field(default_factory=dict)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Count an entry."""
        self.count += 1
        self.example = entry
        at, stime = _time(entry.get("quarantined_at")), _time(entry.get("stime"))
        if at is not None:
            self.first_at = at if self.first_at is None else min(at, self.first_at)
            self.last_at = at if self.last_at is None else max(at, self.last_at)
            self.behind_us_max = max(self.behind_us_max, at - (at if stime is None else stime))
        key = entry.get("key")
        if isinstance(key, str) and (key in self.keys or len(self.keys) < KEYS_MAX):
            self.keys[key] = self.keys.get(key, 0) + 1

    def to_json(self, spec: StreamSpec | None) -> dict[str, Any]:
        """Return the JSON of ``--json``."""
        return {
            "reason": self.reason,
            "fault": self.fault,
            "count": self.count,
            "first_at": _iso(self.first_at),
            "last_at": _iso(self.last_at),
            "keys": self.keys,
            "advice": advice(self, spec),
            "example": dict(self.example),
        }


def _iso(us: int | None) -> str | None:
    return None if us is None else format_time(us)


def grouped(values: Iterable[bytes | None]) -> list[RefusedGroup]:
    """Group the values of a quarantine topic, the most frequent first.

    Values that are no entries are ignored: everyone who may write to the topic may write them.
    """
    groups: dict[tuple[str, str], RefusedGroup] = {}
    seen: set[tuple[str, str]] = set()
    for value in values:
        try:
            entry = orjson.loads(value or b"")
        except orjson.JSONDecodeError:
            continue
        if not isinstance(entry, dict):
            continue
        reason, position = str(entry.get("reason")), str(entry.get("position"))
        if (reason, position) not in seen:
            seen.add((reason, position))
            fault = _fault(entry)
            if (reason, fault) not in groups and len(groups) >= FAULTS_MAX:
                fault = OTHERS
            groups.setdefault((reason, fault), RefusedGroup(reason, fault)).add(entry)
    return sorted(groups.values(), key=lambda group: (group.fault == OTHERS, -group.count))


def _fault(entry: Mapping[str, Any]) -> str:
    """Return what is wrong with an entry: the same for all that one repair would have made good."""
    reason = entry.get("reason")
    if reason == "malformed":
        text = _NUMBER.sub("N", _QUOTED.sub("'...'", str(entry.get("detail") or "")))
        return text[:FAULT_CHARS_MAX]
    stime, at = _time(entry.get("stime")), _time(entry.get("quarantined_at"))
    if stime is None or at is None:
        return ""
    if other_unit(stime, at, None):
        return "another unit of time"
    return _like_local(stime, at)


def _like_local(stime: int, at: int) -> str:
    """Return ``2 h behind the clock`` of a time that may be a local one; else nothing."""
    behind = at - stime
    hours = round(behind / HALF_HOUR_US)
    is_near = abs(behind - hours * HALF_HOUR_US) <= LOCAL_ERROR_US
    if not hours or not is_near or abs(behind) > LOCAL_US_MAX:
        return ""
    return f"{abs(hours) / 2:g} h {'behind' if hours > 0 else 'ahead of'} the clock"


def advice(group: RefusedGroup, spec: StreamSpec | None) -> str:
    """Return what would have made the last entry a reading; empty if nothing can be guessed."""
    stime, at = _time(group.example.get("stime")), _time(group.example.get("quarantined_at"))
    if group.reason == "malformed":
        return _advice_on_text(group, spec)
    if stime is not None and at is not None:
        unit = other_unit(stime, at, None if spec is None else spec.time.unit)
        if unit:
            return f"{moment(stime, None).partition('-')[0]}: {unit}"
        if offset := _like_local(stime, at):
            return f"{offset}: are these local times? declare `time: {{..., zone: Area/City}}`"
    if group.reason == "ahead":
        return f"the clock of the device is ahead: {group.example.get('detail') or 'correct it'}"
    if group.reason == "late" and 0 < group.behind_us_max <= DISORDER_US_MAX:
        tenths = -(-group.behind_us_max // 100_000) * 100_000
        return (
            f"the latest came {group.behind_us_max / 1e6:.1f} s after its time:"
            f" `disorder: {format_duration_us(tenths)}` would have taken it"
        )
    if group.reason == "late":
        return "older than readings before it: a stream takes readings in the order of their times"
    return ADVICE.get(group.reason, "")


def _advice_on_text(group: RefusedGroup, spec: StreamSpec | None) -> str:
    """Return why readings are malformed, and the nearest repair of that."""
    detail = str(group.example.get("detail") or "the message")
    what = f"cannot be read: {detail}"
    name = detail.partition(":")[0]
    if group.fault == OTHERS:
        return f"{what}, and others: `--json` has the latest example"
    if name == "time" and spec is not None and not detail.startswith("time:"):
        form, unit = spec.time.format, spec.time.unit
        declared = f"unit: {unit}" if form is None else f"format: {form}"
        return f"{what}; is it absent, or not as declared (`{declared}`)?"
    if name.startswith("field "):
        field = name.removeprefix("field ")
        return f"{what}; if a text stands for no value of {field}, declare `missing: [TEXT]`"
    if name == "not JSON":
        return f"{what}; is another `format` right?"
    return what


def entries_of(transport: Transport, topic: str) -> Iterable[bytes | None]:
    """Yield the values of a quarantine topic, the last ``ENTRIES_MAX``; may raise ``LogError``."""
    log = (topic, 0)
    beginning = transport.beginning_offsets([log], timeout_s=ASK_S_MAX)[log]
    end = transport.end_offsets([log], timeout_s=ASK_S_MAX)[log]
    for record in read_range(
        transport, log, max(beginning, end - ENTRIES_MAX), end, idle_s_max=ASK_S_MAX
    ):
        yield record.value


def _time(text: Any) -> int | None:
    """Parse a time of an entry; also one outside the years of the calendar, as ``12us``."""
    if not isinstance(text, str):
        return None
    try:
        return int(text[:-2]) if text.endswith("us") else parse_time(text)
    except ValueError:
        return None
