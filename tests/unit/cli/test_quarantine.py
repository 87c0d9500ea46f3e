"""What `slackwater quarantine` makes of entries: counts, and the nearest repair of each reason."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest
from tests.unit.machine.test_layout import stream

from slackwater.cli.quarantine import FirstReadings, lines
from slackwater.model.deployment import StreamSpec, TimeSpec, TimeUnit
from slackwater.model.records import Heartbeat
from slackwater.protocols.dpc.source.core import Reason
from slackwater.proxy.quarantine import QuarantineEntry, to_json
from slackwater.status.refused import FAULTS_MAX, OTHERS, advice, grouped

S = 1_000_000
NOW = 1_795_696_000 * S
HOUR = 3_600 * S


def entry(
    reason: Reason, stime: int | None, *, position: str = "0:1", detail: str = "", key: str = "m7"
) -> bytes:
    one = QuarantineEntry(position, reason, stime, detail, '{"mote": "m7"}', key)
    return to_json("lab", one, NOW)


def declared(unit: TimeUnit) -> StreamSpec:
    return replace(stream("lab"), time=TimeSpec(field="at", unit=unit))


@pytest.mark.parametrize(
    ("unit", "sent", "year"),
    [("us", "ms", 1970), ("us", "s", 1970), ("ms", "s", 1970), ("s", "ms", 58873)],
)
def test_a_wrong_unit_is_guessed(unit: TimeUnit, sent: TimeUnit, year: int) -> None:
    """The number of a reading of now in one unit, read in the other."""
    us_of = {"us": 1, "ms": 1_000, "s": S}
    stime = NOW // us_of[sent] * us_of[unit]
    reason: Reason = "before_start" if stime < NOW else "ahead"
    (group,) = grouped([entry(reason, stime)])
    shown = advice(group, declared(unit))
    assert shown.removeprefix("+") == f"{year}: is the unit {sent}? `unit: {unit}` is declared"
    assert advice(group, None).removeprefix("+").startswith(f"{year}: is the unit 1")


def test_local_times_and_small_delays_are_told_apart() -> None:
    (group,) = grouped([entry("late", NOW - 2 * HOUR - 800_000)])
    assert advice(group, None).startswith("2 h behind the clock: are these local times?")
    (group,) = grouped([entry("ahead", NOW + HOUR, detail="3600.000 s ahead")])
    assert advice(group, None).startswith("1 h ahead of the clock: are these local times?")
    (group,) = grouped([entry("ahead", NOW + 700 * S, detail="700.000 s ahead")])
    assert advice(group, None) == "the clock of the device is ahead: 700.000 s ahead"
    late = [entry("late", NOW - 3_210_000), entry("late", NOW - S, position="0:2")]
    (group,) = grouped(late)
    assert advice(group, declared("us")) == (
        "the latest came 3.2 s after its time: `disorder: 3300ms` would have taken it"
    )
    (group,) = grouped([entry("before_start", NOW - 5 * S)])
    assert "before the first `up`" in advice(group, None)


def test_entries_are_counted_once_and_foreign_records_not_at_all() -> None:
    values = [
        entry("malformed", None, position="0:3", detail="time"),
        entry("late", NOW - S),
        entry("late", NOW - S),
        entry("late", NOW - S, position="0:2", key="m8"),
        b"{", b"[]", None,
    ]  # fmt: skip
    groups = grouped(values)
    assert [(group.reason, group.count) for group in groups] == [("late", 2), ("malformed", 1)]
    shown = lines("lab", groups, None)
    assert shown[0] == "lab: 3 readings in quarantine"
    assert shown[1].startswith("late               2  ")
    assert shown[1].endswith(", of m7, m8")
    assert "  -> cannot be read: time" in shown
    assert '  e.g. 0:3: {"mote": "m7"}' in shown
    assert lines("lab", [], None) == ["nothing of lab is in quarantine"]
    out = orjson.loads(orjson.dumps([group.to_json(None) for group in groups]))
    assert out[0]["keys"] == {"m7": 1, "m8": 1}
    assert out[1]["advice"] == "cannot be read: time"
    assert out[1]["example"]["position"] == "0:3"


def malformed(details: list[str]) -> list[bytes]:
    return [
        entry("malformed", None, position=f"0:{i}", detail=detail)
        for i, detail in enumerate(details)
    ]


def test_readings_with_different_faults_have_groups_and_repairs_of_their_own() -> None:
    """One line with the text of the last reading was said of all of them."""
    details = ["field pm25", *["not JSON"] * 3, *["time"] * 2, "field pm10", "not JSON"]
    groups = grouped(malformed(details))
    found = {group.fault: group.count for group in groups}
    assert found == {"not JSON": 4, "time": 2, "field pm25": 1, "field pm10": 1}
    shown = lines("lab", groups, declared("ms"))
    assert shown[0] == "lab: 8 readings in quarantine"
    assert [line for line in shown if line.startswith("  -> ")] == [
        "  -> cannot be read: not JSON; is another `format` right?",
        "  -> cannot be read: time; is it absent, or not as declared (`unit: ms`)?",
        *(
            f"  -> cannot be read: field {name}; if a text stands for no value of {name}, declare"
            " `missing: [TEXT]`"
            for name in ("pm25", "pm10")
        ),
    ]
    assert sum(line.startswith("  e.g. ") for line in shown) == 4


def test_texts_that_differ_in_numbers_and_quoted_parts_are_one_fault() -> None:
    details = ["row has 3 cells, not 2", "row has 14 cells, not 2", "member 'a' twice",
               'member "b" twice', "0.5 s", "1.25 s"]  # fmt: skip
    groups = grouped(malformed(details))
    assert {group.fault for group in groups} == {
        "row has N cells, not N",
        "member '...' twice",
        "N s",
    }
    assert [group.count for group in groups] == [2, 2, 2]


def test_faults_are_bounded_and_the_rest_is_counted_for_each_reason() -> None:
    many = malformed([f"field {chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(200)])
    groups = grouped([*many, entry("late", NOW - S, position="0:999")])
    assert len(groups) == FAULTS_MAX + 2
    assert sum(group.count for group in groups) == 201
    assert [(group.reason, group.fault, group.count) for group in groups[-2:]] == [
        ("malformed", OTHERS, 200 - FAULTS_MAX),
        ("late", OTHERS, 1),
    ]
    shown = lines("lab", groups, None)
    assert any(line.startswith("malformed ") and line.endswith("; other faults") for line in shown)
    assert any("and others: `--json` has the latest example" in line for line in shown)


def test_late_readings_are_told_apart_by_what_their_times_look_like() -> None:
    """A local time hid that others need a larger disorder, and was hidden by them."""
    at = {"0:1": NOW - 2 * HOUR, "0:2": NOW - 3 * S, "0:3": NOW // 1_000, "0:4": NOW - S}
    values = [entry("late", stime, position=position) for position, stime in at.items()]
    small, *others = grouped(values)
    assert (small.fault, small.count) == ("", 2)
    assert "`disorder: 3s` would have taken it" in advice(small, None)
    assert [group.fault for group in others] == ["2 h behind the clock", "another unit of time"]
    assert "are these local times?" in advice(others[0], None)
    assert "is the unit" in advice(others[1], None)


def beat(name: str, **detail: int) -> dict[str, Heartbeat]:
    return {name: Heartbeat(name, 7, 0, 0, 0, True, {}, (), detail)}


def test_a_stream_whose_first_readings_are_all_refused_is_reported_once() -> None:
    first = FirstReadings()
    assert first.look(beat("proxy/lab", readings=0, late=2)) == []
    assert first.look(beat("root/q.0", readings=0, late=20)) == []
    assert first.look(beat("proxy/room", readings=1, late=20)) == [], "it has a usable one"
    (line,) = first.look(beat("proxy/lab", readings=0, late=3, malformed=1))
    assert line == (
        "stream lab: its first 4 readings are all in quarantine (malformed, late);"
        " `slackwater quarantine lab` says why"
    )
    assert first.look(beat("proxy/lab", readings=0, late=30)) == []
