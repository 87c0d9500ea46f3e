"""Declared fields that match nothing, and the clocks of devices, in log and heartbeat."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.proxy_world import SPEC, S, World, replace

from slackwater.model.deployment import FieldSpec, TimeSpec
from slackwater.model.records import type_i64
from slackwater.protocols.dpc.source.arrived import Arrived
from slackwater.proxy.observed import DEVICES_MAX, OFFSET_KEPT_US, Observed
from slackwater.proxy.sensors import inbox_of
from slackwater.status.observed import counters, phrases

NOW = 10_000 * S
TODAY = 1_795_900_000 * S
FIELDS = (FieldSpec("t", "t"), FieldSpec("particles", "particles_2.5um"))
DUST = replace(SPEC, fields=FIELDS)


def arrived(
    keys: Sequence[str], stimes: Sequence[int] | type_i64, *values: Sequence[float]
) -> Arrived:
    names = list(dict.fromkeys(keys))
    index = np.array([names.index(key) for key in keys], np.int32)
    columns = tuple(np.array(column, np.float64) for column in values)
    places = np.arange(len(keys), dtype=np.int64)
    return Arrived(np.array(stimes, np.int64), index, names, columns, places, len(keys))


def dusty(n: int, particles: float = np.nan) -> Arrived:
    return arrived(["a"] * n, [NOW] * n, [20.0] * n, [particles] * n)


class TestFields:
    def test_the_share_of_readings_that_have_a_field(self) -> None:
        seen = Observed(DUST)
        seen.note(dusty(30), None)
        seen.note(dusty(10, 1.5), None)
        assert seen.detail() == {"offered": 40, "has.t": 40, "has.particles": 10}
        assert list(phrases(seen.detail())) == [
            " fields in a part of the readings: particles 25.0%"
        ]

    def test_a_field_that_no_reading_has_is_told_once_after_a_hundred(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        seen = Observed(DUST)
        seen.note(dusty(99), None)
        early = seen.asks
        seen.note(dusty(1), None)
        assert (early, seen.asks) == (False, True)
        seen.tell(b'{"node": "a", "ts": 1, "particles_2.5um": 3}')
        (warning,) = caplog.messages
        assert warning == (
            "stream room: none of 100 readings has field particles: 'particles_2.5um' is there, "
            "as one name; write it in double quotes, '\"particles_2.5um\"'"
        )
        again = seen.asks
        assert not again
        (phrase,) = phrases(seen.detail())
        assert phrase == (
            ' WARNING: no reading has particles (a message has "particles_2.5um", ts, node)'
        )

    def test_one_that_comes_later_is_not_told_of_any_more(self) -> None:
        seen = Observed(DUST)
        seen.note(dusty(100), None)
        seen.tell(b"{}")
        seen.note(dusty(900, 1.0), None)
        assert "WARNING" not in "".join(phrases(seen.detail()))
        assert not any(name.startswith("there.") for name in seen.detail())

    @pytest.mark.parametrize(
        ("message", "there"),
        [
            (b'{"air": {"particles": 1}, "b": 2}', ["air.particles", "b"]),
            (b'[{"particle": 1}, {"x": 2}]', ["particle"]),
            (b'{"at": [1, 2], "particle": [1, 2]}', ["particle", "at"]),
            (b'{"met": [{"pm": 1}]}', ["met[0].pm"]),
            (b'{"pm": 1}\n{"pm": 2}\n', ["pm"]),
            (b"node,ts,t\n", []),
            (b"\xff\x00", []),
            (b"[" * 10_000, []),
            (b"7", []),
            (b"", []),
        ],
    )
    def test_the_names_of_a_message(self, message: bytes, there: list[str]) -> None:
        seen = Observed(DUST)
        seen.note(dusty(100), None)
        seen.tell(message)
        found = [name for name in seen.detail() if name.startswith("there.")]
        assert found == [f"there.{name}" for name in there]

    def test_what_is_reported_is_bounded(self, caplog: pytest.LogCaptureFixture) -> None:
        spec = replace(SPEC, fields=tuple(FieldSpec(f"f{i}", f"f{i}") for i in range(1_000)))
        seen = Observed(spec)
        n = 200
        seen.note(arrived(["a"] * n, [NOW] * n, *[[np.nan] * n] * 1_000), None)
        seen.tell(json.dumps({f"\n{i}" * 100: i for i in range(1_000)}).encode())
        assert len(caplog.messages) == 11
        assert len(seen.detail()) == 1 + 64 + 10
        assert all(len(name) < 80 and name.isprintable() for name in seen.detail())


class TestDevices:
    def test_the_worst_ten_in_a_bounded_table(self) -> None:
        seen = Observed(SPEC)
        rng = np.random.default_rng(1)
        for turn in range(20):
            keys = [f"k{turn}/{i}" for i in range(500)]
            offsets = rng.integers(-60 * S, 60 * S, 500)
            offsets[7] = (3 * turn - 29) * 1_000 * S
            seen.note(arrived(keys, NOW + offsets, [0.0] * 500), NOW)
        found = {n: ms for n, ms in seen.detail().items() if n.startswith("offset_ms.")}
        wanted = sorted(((3 * t - 29) * 1_000_000 for t in range(20)), key=abs)[-DEVICES_MAX:]
        assert sorted(found.values()) == sorted(wanted)

    def test_the_latest_of_a_batch_counts_and_a_clock_that_is_right_is_not_reported(self) -> None:
        seen = Observed(SPEC)
        stimes = [NOW - 50 * S, NOW - S // 2, NOW + 30 * S, NOW + 20 * S]
        seen.note(arrived(["a", "a", "b", "b"], stimes, [0.0] * 4), NOW)
        assert counters(seen.detail()) == {"offered": 4}
        assert list(phrases(seen.detail())) == [" clocks of devices: b +30.0 s"]

    def test_an_offset_of_years_is_not_told_in_seconds(self) -> None:
        seen = Observed(SPEC)
        stimes = [TODAY - 40 * 31_557_600 * S, TODAY + 3 * 86_400 * S]
        seen.note(arrived(["a", "b"], stimes, [0.0] * 2), TODAY)
        assert list(phrases(seen.detail())) == [" clocks of devices: a -40.0 years, b +3.0 days"]

    @pytest.mark.parametrize(
        ("declared", "factor", "meant"),
        [("s", 1e-3, None), ("ms", 1e-3, "s"), ("s", 1e3, "ms"), ("us", 1e-6, "s"), ("iso", 1, "")],
    )
    def test_times_in_another_unit_are_told_with_it(
        self, declared: Any, factor: float, meant: str | None
    ) -> None:
        """A time of a thousandth of the clock's has a unit that is a thousand times as long."""
        seen = Observed(replace(SPEC, time=TimeSpec(("t",), unit=declared)))
        seen.note(arrived(["a", "b"], [int(TODAY * factor), TODAY], [0.0] * 2), TODAY)
        reported = [each for each in phrases(seen.detail()) if "far off" in each]
        wanted = f" times are far off: is the unit {meant}? `unit: {declared}` is declared"
        assert reported == ([wanted] if meant else [])
        assert counters(seen.detail()) == {"offered": 2}

    def test_a_device_that_was_set_right_is_forgotten(self) -> None:
        seen = Observed(SPEC)
        seen.note(arrived(["a"], [NOW + 30 * S], [0.0]), NOW)
        later = NOW + 10 * S
        seen.note(arrived(["a"], [later], [0.0]), later)
        assert not list(phrases(seen.detail()))

    def test_one_that_is_silent_is_forgotten_after_a_while(self) -> None:
        seen = Observed(SPEC)
        seen.note(arrived(["a"], [NOW + 30 * S], [0.0]), NOW)
        later = NOW + OFFSET_KEPT_US + 1
        seen.note(arrived(["b"], [later], [0.0]), later)
        assert not list(phrases(seen.detail()))

    def test_without_a_clock_to_compare_with_there_are_none(self) -> None:
        seen = Observed(SPEC)
        seen.note(arrived(["a"], [NOW + 30 * S], [0.0]), None)
        assert not list(phrases(seen.detail()))


def test_a_file_that_is_ingested_reports_both(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    world = World(tmp_path)
    rows = [f"{'fast' if i == 50 else 'n'},{9_000 if i == 50 else 999},nan" for i in range(100)]
    path = world.file(rows)
    proxy = world.sensors()
    job = inbox_of(world.folder / "a", "room") / "job.json"
    job.write_text(json.dumps({"file": str(path)}))
    world.run(proxy, 3)
    detail: dict[str, Any] = proxy.detail()
    assert (detail["offered"], detail["has.t"]) == (100, 0)
    assert detail["offset_ms.fast"] == 8_000_000
    assert "none of 100 readings has field t (t)" in caplog.text
